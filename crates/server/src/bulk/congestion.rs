//! Congestion: per group, over the whole system, and over time.

use axum::extract::State;
use serde::Deserialize;
use tidegate_api::{Congestion, CongestionPoint, CongestionSummary, Page, Role};
use tidegate_core::bulk::views::{Query, View};
use utoipa::IntoParams;

use super::convert::{self, time};
use crate::auth::Caller;
use crate::extract::{Json, PathParams, QueryParams, cursor};
use crate::problem::ApiResult;
use crate::routes::listing::{Listing, page_size};
use crate::state::{App, group_id};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Recent {
    /// The most entries; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Lists how much downstream throttling delays each group.
#[utoipa::path(
    get, path = "/v1/congestion",
    operation_id = "getCongestionSummary", tag = "congestion", security(("apiKey" = ["READ"]), ()),
    params(Listing),
    responses(
        (status = 200, description = "Totals over all groups, and one page of groups.", body = CongestionSummary)
    )
)]
pub(crate) async fn summary(
    State(app): State<App>,
    caller: Caller,
    QueryParams(params): QueryParams<Listing>,
) -> ApiResult<Json<CongestionSummary>> {
    caller.need_for_all(Role::Read)?;
    let query = Query::CongestionSummary {
        after: cursor(params.cursor.as_deref())?,
        max: page_size(params.limit)?,
    };
    let View::CongestionSummary(summary) = app.query(query).await? else {
        unreachable!("a query for the summary returns the summary")
    };
    Ok(Json(CongestionSummary {
        active_group_count: summary.active_group_count,
        total_non_ready_count: summary.total_non_ready_count,
        worst_congestion_level: convert::congestion_level(summary.worst_congestion_level),
        worst_congestion_group: summary.worst_congestion_group.map(Into::into),
        groups: convert::page(summary.groups, convert::congestion),
    }))
}

/// Reads how much downstream throttling delays one group.
#[utoipa::path(
    get, path = "/v1/groups/{group}/congestion",
    operation_id = "getGroupCongestion", tag = "congestion", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path)),
    responses((status = 200, description = "The congestion of the group.", body = Congestion))
)]
pub(crate) async fn of_group(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
) -> ApiResult<Json<Congestion>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Read, &group)?;
    let View::Congestion(state) = app.query(Query::Congestion(group)).await? else {
        unreachable!("a query for congestion returns congestion")
    };
    Ok(Json(convert::congestion(state)))
}

/// Reads a group's congestion over time, oldest entry first.
#[utoipa::path(
    get, path = "/v1/groups/{group}/congestion/history",
    operation_id = "getGroupCongestionHistory", tag = "congestion", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path), Recent),
    responses((status = 200, description = "The latest entries, oldest first.", body = Page<CongestionPoint>))
)]
pub(crate) async fn history(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
    QueryParams(params): QueryParams<Recent>,
) -> ApiResult<Json<Page<CongestionPoint>>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Read, &group)?;
    let query = Query::CongestionHistory {
        group,
        max: page_size(params.limit)?,
    };
    let View::CongestionHistory(points) = app.query(query).await? else {
        unreachable!("a query for the history returns the history")
    };
    let items = points.into_iter().map(|point| CongestionPoint {
        timestamp: time(point.timestamp),
        non_ready_count: u64::from(point.non_ready_count),
        backoff_ms: point.backoff_ms.0,
        rate_limit_speed: point.rate_limit_speed,
    });
    Ok(Json(Page {
        items: items.collect(),
        next: None,
    }))
}
