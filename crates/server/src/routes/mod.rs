//! The API's addresses. Each handler is described where it stands; the description is served as OpenAPI.

mod batches;
mod congestion;
mod dead;
mod dead_letters;
mod groups;
mod jobs;
mod leases;
mod limits;
mod listing;
mod passes;
mod records;
mod refresh;
pub(crate) mod room_page;
mod rooms;
mod stats;
mod visits;
mod why;

use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::openapi;
use crate::state::App;

/// Everything below `/v1`, what visitors of rooms ask, and the description of both. Visitors' answers are their own:
/// nothing that keeps answers may stand before them.
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
        .routes(routes!(jobs::enqueue))
        .routes(routes!(jobs::enqueue_for_group))
        .routes(routes!(jobs::read))
        .routes(routes!(jobs::retry))
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
        .routes(routes!(refresh::overview))
        .routes(routes!(refresh::sources))
        .routes(routes!(refresh::release))
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
        .routes(routes!(visits::place))
        .routes(routes!(visits::leave))
        .routes(routes!(visits::challenge))
        .routes(routes!(visits::draw))
        .routes(routes!(passes::keys))
        .split_for_parts();
    description.merge(theirs);
    (router, visitors, openapi::finish(description))
}
