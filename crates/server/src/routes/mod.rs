//! The API's routes. Each handler carries its own description, and the OpenAPI document collects them.

pub(crate) mod listing;
mod stats;

use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::bulk::{batches, change_jobs, congestion, dead, groups, jobs, leases, limits, why};
use crate::openapi;
use crate::refresh::{dead_letters, records, status};
use crate::room::{passes, rooms, visits};
use crate::state::App;

/// Returns the routes below `/v1`, the routes of visitors, and the description of both.
///
/// The visitors' routes are separate, because their responses are personal: no layer that caches responses may wrap them.
pub(crate) fn api() -> (axum::Router<App>, axum::Router<App>, OpenApi) {
    let (router, mut description) = OpenApiRouter::with_openapi(openapi::head())
        .routes(routes!(groups::list))
        .routes(routes!(groups::read, groups::patch))
        .routes(routes!(groups::pause))
        .routes(routes!(groups::resume))
        .routes(routes!(groups::cancel))
        .routes(routes!(groups::reset_stats))
        .routes(routes!(groups::limits))
        .routes(routes!(why::group))
        .routes(routes!(congestion::of_group))
        .routes(routes!(congestion::history))
        .routes(routes!(congestion::summary))
        .routes(routes!(batches::open, batches::read))
        .routes(routes!(batches::seal))
        .routes(routes!(batches::pause))
        .routes(routes!(batches::resume))
        .routes(routes!(batches::cancel))
        .routes(routes!(batches::results))
        .routes(routes!(batches::progress))
        .routes(routes!(jobs::feed))
        .routes(routes!(change_jobs::list, jobs::enqueue))
        .routes(routes!(change_jobs::cancel_all))
        .routes(routes!(change_jobs::run_all_now))
        .routes(routes!(change_jobs::reschedule_all))
        .routes(routes!(change_jobs::reprioritise_all))
        .routes(routes!(change_jobs::drop_finished))
        .routes(routes!(change_jobs::cancel))
        .routes(routes!(change_jobs::run_now))
        .routes(routes!(change_jobs::reschedule_one))
        .routes(routes!(change_jobs::reprioritise_one))
        .routes(routes!(jobs::enqueue_for_group))
        .routes(routes!(jobs::read))
        .routes(routes!(jobs::replay))
        .routes(routes!(why::job))
        .routes(routes!(leases::lease))
        .routes(routes!(leases::extend))
        .routes(routes!(leases::settle))
        .routes(routes!(dead::list))
        .routes(routes!(dead::replay))
        .routes(routes!(dead::purge))
        .routes(routes!(limits::read, limits::patch))
        .routes(routes!(records::read))
        .routes(routes!(records::refresh))
        .routes(routes!(records::read_many))
        .routes(routes!(records::follow))
        .routes(routes!(status::overview))
        .routes(routes!(status::sources))
        .routes(routes!(status::release))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::inspect))
        .routes(routes!(dead_letters::replay))
        .routes(routes!(dead_letters::purge))
        .routes(routes!(rooms::list))
        .routes(routes!(rooms::read, rooms::remove))
        .routes(routes!(rooms::history))
        .routes(routes!(rooms::resize))
        .routes(routes!(rooms::pause))
        .routes(routes!(rooms::resume))
        .routes(routes!(rooms::close))
        .routes(routes!(rooms::void))
        .routes(routes!(passes::redeem))
        .routes(routes!(passes::check))
        .routes(routes!(passes::extend))
        .routes(routes!(passes::complete))
        .routes(routes!(passes::release))
        .routes(routes!(stats::stats))
        .routes(routes!(stats::history))
        .routes(routes!(stats::follow))
        .routes(routes!(stats::targets))
        .routes(routes!(stats::enable))
        .routes(routes!(stats::disable))
        .routes(routes!(stats::audit))
        .routes(routes!(stats::me))
        .split_for_parts();
    let (visitors, theirs) = OpenApiRouter::new()
        .routes(routes!(visits::stream))
        .routes(routes!(visits::join))
        .routes(routes!(visits::ticket))
        .routes(routes!(visits::leave))
        .routes(routes!(visits::challenge))
        .routes(routes!(visits::draw))
        .routes(routes!(passes::keys))
        .split_for_parts();
    description.merge(theirs);
    (router, visitors, openapi::finish(description))
}
