//! The frame of a conformance suite: named cases that every backend must pass, compiled once and run as one test each.
//!
//! A suite lists its cases with [`conformance!`](crate::conformance!), next to a trait `Backend` that opens what is tested.
//! That gives `cases`, `case`, and a macro that a test program calls with a backend. [`catches`] proves that a case fails on
//! a backend with a fault.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What a case does with a backend.
pub type RunCase<B> = for<'a> fn(&'a B) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A case that can be selected by its name.
pub struct Case<B: ?Sized> {
    /// `fair_order::strict_alternation`, the name of the test.
    pub name: &'static str,
    run: RunCase<B>,
}

impl<B: ?Sized> Case<B> {
    /// A case with its name.
    pub fn new(name: &'static str, run: RunCase<B>) -> Self {
        Self { name, run }
    }

    /// Runs the case; panics if the backend does not conform.
    pub async fn run(&self, backend: &B) {
        (self.run)(backend).await;
    }
}

impl<B: ?Sized> Clone for Case<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: ?Sized> Copy for Case<B> {}

impl<B: ?Sized> fmt::Debug for Case<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

/// Whether a backend passes a case.
async fn passes<B: ?Sized + Send + Sync + 'static>(case: Case<B>, backend: Arc<B>) -> bool {
    match tokio::spawn(async move { case.run(&backend).await }).await {
        Ok(()) => true,
        Err(error) => {
            assert!(error.is_panic(), "{case:?} was cancelled");
            false
        }
    }
}

/// The case passes on a right backend and fails on a wrong one.
pub async fn catches<B: ?Sized + Send + Sync + 'static>(case: Case<B>, right: Arc<B>, wrong: Arc<B>) {
    let name = case.name;
    assert!(
        passes(case, right).await,
        "{name} fails on a backend that conforms"
    );
    assert!(!passes(case, wrong).await, "{name} does not notice");
}

/// Lists the cases of a suite, by file, and declares the macro that turns them into tests of a backend.
///
/// ```ignore
/// conformance! {
///     $ room_conformance_suite found by tidegate_store::room::conformance::case, each #[::tokio::test];
///     visits { a_pass_is_redeemed_once, a_slot_comes_back_once, }
/// }
/// ```
///
/// The first token is a dollar sign: macros cannot write one into the macros that they declare.
#[macro_export]
macro_rules! conformance {
    (
        $d:tt $suite:ident found by $find:path, each #[$test:meta];
        $($file:ident { $($case:ident,)+ })+
    ) => {
        /// A case of this suite.
        pub type Case = $crate::conformance::Case<dyn Backend>;

        /// Every case, in the order of the list.
        pub fn cases() -> Vec<Case> {
            vec![$($(Case::new(
                concat!(stringify!($file), "::", stringify!($case)),
                |backend| Box::pin($file::$case(backend)),
            ),)+)+]
        }

        /// The case of this name. Tests look theirs up here, so that the cases are compiled once, in this crate, and not
        /// again with each test program.
        pub fn case(name: &str) -> Case {
            let found = cases().into_iter().find(|case| case.name == name);
            found.unwrap_or_else(|| panic!("there is no case {name}"))
        }

        /// One test per case over a backend.
        #[macro_export]
        macro_rules! $suite {
            ($d backend:expr) => {
                $(mod $file {
                    #[allow(unused_imports, reason = "a backend may be named by a path")]
                    use super::*;

                    $(#[$test]
                    async fn $case() {
                        let name = concat!(stringify!($file), "::", stringify!($case));
                        $find(name).run(&$d backend).await;
                    })+
                })+
            };
        }
    };
}
