//! Lua files as one function library: one file per transition, joined with the code that they share.
//!
//! A server loads a library once; EVAL would recreate its functions with every call. The library's name ends in a digest of
//! its text, so that versions do not conflict.

use tidegate_core::hash::fnv1a;

/// What a function needs of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It writes. A server that cannot write rejects the call as a whole, so it is never half done.
    Write,
    /// It only reads: allowed on a server that cannot write.
    Read,
    /// It frees memory: allowed on a server that is out of it.
    Free,
}

impl Access {
    fn flags(self) -> &'static str {
        match self {
            Access::Write => "",
            Access::Read => "'no-writes'",
            Access::Free => "'allow-oom'",
        }
    }
}

/// A transition: its name, what it needs, how a call begins, and its code.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    /// The name of its file.
    pub name: &'static str,
    /// What it needs of the server.
    pub access: Access,
    /// Runs before the code, with `keys` and `args`.
    pub prologue: &'static str,
    /// Joined in this order. It sees `KEYS` and `ARGV`.
    pub code: &'static [&'static str],
}

/// A transition by its function name on the server.
#[derive(Debug)]
pub struct Script {
    /// The name for FCALL.
    pub function: String,
}

/// A function library, ready to load.
#[derive(Debug)]
pub struct Library {
    /// Its name on the server.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Library {
    /// Joins the functions of a part with the code that they share.
    pub fn new(part: &str, shared: &[&str], functions: &[Function]) -> Self {
        let body = |library: &str| {
            let shared = shared.concat();
            let functions = functions.iter().map(|function| registered(library, function));
            shared + &functions.collect::<String>()
        };
        let name = format!("tidegate_{part}_{:016x}", fnv1a(body("").as_bytes()));
        Self {
            text: format!("#!lua name={name}\n{}", body(&name)),
            name,
        }
    }

    /// One of its functions.
    pub fn script(&self, function: &str) -> Script {
        Script {
            function: format!("{}_{function}", self.name),
        }
    }
}

/// Each transition is a function of its own, because Lua allows only 200 local names in one function.
fn registered(library: &str, function: &Function) -> String {
    let Function { name, prologue, .. } = function;
    let (flags, code) = (function.access.flags(), function.code.concat());
    format!(
        "do local function transition(KEYS, ARGV)\n{code}end\nredis.register_function{{ \
         function_name = '{library}_{name}', flags = {{ {flags} }}, \
         callback = function(keys, args) {prologue} return transition(keys, args) end }}\nend\n"
    )
}

/// Declares the function library of a part, and a [`Script`] for each of its functions.
///
/// ```ignore
/// library! {
///     part "room", files "../lua/", shared ["head", "ticket"];
///     JOIN: Write PROLOGUE "join";
///     LOOK: Read PROLOGUE "look" after "positions";
/// }
/// ```
#[macro_export]
macro_rules! library {
    (
        part $part:literal, files $folder:literal, shared [$($shared:literal),*];
        $($name:ident: $access:ident $prologue:ident $function:literal $(after $($before:literal)+)?;)+
    ) => {
        pub(super) static LIBRARY: std::sync::LazyLock<$crate::Library> = std::sync::LazyLock::new(|| {
            $crate::Library::new(
                $part,
                &[$(include_str!(concat!($folder, $shared, ".lua"))),*],
                &[$($crate::Function {
                    name: $function,
                    access: $crate::Access::$access,
                    prologue: $prologue,
                    code: &[
                        $($(include_str!(concat!($folder, $before, ".lua")),)+)?
                        include_str!(concat!($folder, $function, ".lua")),
                    ],
                }),+],
            )
        });

        $(pub(super) static $name: std::sync::LazyLock<$crate::Script> =
            std::sync::LazyLock::new(|| LIBRARY.script($function));)+
    };
}
