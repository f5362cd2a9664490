//! Congestion: per group, over the whole system, and over time.

use axum::extract::State;
use serde::Deserialize;
use tidegate_api::{Congestion, CongestionPoint, CongestionSummary, Page, Role};
use tidegate_core::bulk::views::{Query, View};
use utoipa::IntoParams;

use super::listing::{Listing, page_size};
use crate::auth::Caller;
use crate::convert::{self, time};
use crate::extract::{Json, PathParams, QueryParams, cursor};
use crate::problem::ApiResult;
use crate::state::{App, group_id};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Recent {
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
pub(super) async fn summary(
    State(app): State<App>,
    caller: Caller,
    QueryParams(asked): QueryParams<Listing>,
) -> ApiResult<Json<CongestionSummary>> {
    caller.need_for_all(Role::Read)?;
    let query = Query::CongestionSummary {
        after: cursor(asked.cursor.as_deref())?,
        max: page_size(asked.limit)?,
    };
    let View::CongestionSummary(summary) = app.view(query).await? else {
        unreachable!("a summary is answered with a summary")
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
pub(super) async fn of_group(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
) -> ApiResult<Json<Congestion>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Read, &group)?;
    let View::Congestion(state) = app.view(Query::Congestion(group)).await? else {
        unreachable!("congestion is answered with congestion")
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
pub(super) async fn history(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
    QueryParams(asked): QueryParams<Recent>,
) -> ApiResult<Json<Page<CongestionPoint>>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Read, &group)?;
    let query = Query::CongestionHistory {
        group,
        max: page_size(asked.limit)?,
    };
    let View::CongestionHistory(points) = app.view(query).await? else {
        unreachable!("history is answered with history")
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
