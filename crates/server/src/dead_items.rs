//! What dead jobs and dead letters share: which ones a request selects, and the count of what became of each.

use tidegate_api::{DeadOutcome, DeadSkipped};

use crate::problem::{ApiError, ApiResult};

/// Limit: items read at once.
pub(crate) const PAGE: u32 = 500;
/// Limit: items that one request names.
const MAX_NAMED: usize = 1_000;
/// Limit: skipped items that one response names.
const MAX_ERRORS: usize = 100;

/// What an operator does with dead items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Replay,
    Purge,
}

/// How a request selects dead items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection {
    /// How many it names.
    pub(crate) named: Option<usize>,
    /// Whether it has a filter.
    pub(crate) filtered: bool,
    pub(crate) all: bool,
    /// The field that names items.
    pub(crate) field: &'static str,
    /// The fields that filter them.
    pub(crate) filters: &'static str,
}

impl Selection {
    /// Accepts a request that selects in exactly one way.
    pub(crate) fn check(&self) -> ApiResult<()> {
        let field = self.field;
        let wrong = match (self.named, self.filtered, self.all) {
            (Some(named), false, false) if named > MAX_NAMED => {
                format!("`{field}` has {named} items; at most {MAX_NAMED} are allowed")
            }
            (Some(_), false, false) | (None, true, false) | (None, false, true) => return Ok(()),
            (Some(_), _, _) => {
                format!("the body has several selections; give only one of `{field}`, a filter, or `all`")
            }
            (None, true, true) => "the body has a filter and `all`; leave one of them out".to_owned(),
            (None, false, false) => {
                format!(
                    "nothing is selected: give `{field}`, or a filter ({}), or `all`: true",
                    self.filters
                )
            }
        };
        Err(ApiError::invalid(wrong))
    }
}

/// Why a command skipped an item.
#[derive(Debug)]
pub(crate) struct Skip {
    pub(crate) code: &'static str,
    pub(crate) detail: String,
}

/// Counts what became of one item.
pub(crate) fn count<T>(outcome: &mut DeadOutcome<T>, item: T, skipped: Option<Skip>) {
    let Some(Skip { code, detail }) = skipped else {
        outcome.handled += 1;
        return;
    };
    outcome.skipped += 1;
    if outcome.errors.len() < MAX_ERRORS {
        outcome.errors.push(DeadSkipped {
            item,
            code: code.to_owned(),
            detail,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(named: Option<usize>, filtered: bool, all: bool) -> Result<(), String> {
        let selection = Selection {
            named,
            filtered,
            all,
            field: "jobs",
            filters: "`group`, `type`",
        };
        selection.check().map_err(|error| error.problem().detail)
    }

    #[test]
    fn a_request_selects_in_exactly_one_way() {
        for (named, filtered, all) in [
            (Some(1_000), false, false),
            (None, true, false),
            (None, false, true),
        ] {
            assert_eq!(check(named, filtered, all), Ok(()));
        }
        for (named, filtered, all, wrong) in [
            (Some(1_001), false, false, "1001 items"),
            (Some(1), true, false, "several selections"),
            (Some(1), false, true, "several selections"),
            (None, true, true, "leave one of them out"),
            (
                None,
                false,
                false,
                "give `jobs`, or a filter (`group`, `type`), or `all`",
            ),
        ] {
            let error = check(named, filtered, all).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn only_the_first_skipped_items_are_named() {
        let mut outcome = DeadOutcome::default();
        count(&mut outcome, 0, None);
        for item in 1..=200 {
            let detail = "gone".to_owned();
            count(&mut outcome, item, Some(Skip { code: "gone", detail }));
        }
        assert_eq!((outcome.handled, outcome.skipped), (1, 200));
        assert_eq!(outcome.errors.len(), MAX_ERRORS);
        assert_eq!(outcome.errors[0].item, 1);
    }
}
