//! The state of the refresh module, its sources, and the release of a budget.

use axum::extract::State;
use tidegate_api::{HoldLifted, Page, Reason, RefreshBreakers, RefreshOverview, RefreshRole, Role, Source};
use tidegate_core::ids::TargetId;
use tidegate_engine::refresh::Roles;

use super::convert;
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::bulk::convert::time;
use crate::extract::{Json, PathParams};
use crate::problem::{ApiError, ApiResult, UNKNOWN_TARGET};
use crate::state::App;

/// Reads the state of the refresh module.
///
/// It covers budgets, lag, circuit breakers, freshness and counters. The service reports what is unavailable as it last
/// saw it.
#[utoipa::path(
    get, path = "/v1/refresh",
    operation_id = "getRefreshOverview", tag = "refresh", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "The state of the refresh module.", body = RefreshOverview))
)]
pub(crate) async fn overview(State(app): State<App>, caller: Caller) -> ApiResult<Json<RefreshOverview>> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refresh_handle()?;
    let budgets = app.budgets.as_deref();
    let seen = |target: &TargetId| budgets.and_then(|budgets| budgets.of(target));
    let breakers = handle.breakers();
    let census = handle.census().into_iter();
    Ok(Json(RefreshOverview {
        at: time(handle.now()),
        roles: roles(handle.options().roles),
        store_available: budgets.is_some_and(|budgets| !budgets.is_unavailable()),
        budgets: app
            .config
            .budgets
            .iter()
            .map(|(name, config)| convert::budget(name.as_str(), config, seen(name)))
            .collect(),
        lag: convert::lag(handle.lags()),
        breakers: RefreshBreakers {
            store: convert::breaker(breakers.store),
            database: convert::breaker(breakers.database),
        },
        freshness: census
            .map(|(source, counts)| (String::from(source), convert::census(counts)))
            .collect(),
        counters: convert::counters(handle.counters()),
    }))
}

/// Lifts the hold of a budget.
///
/// The service calls the provider again although its last `Retry-After` is not over. Records that were delayed
/// meanwhile keep their own retry times.
#[utoipa::path(
    post, path = "/v1/refresh/budgets/{target}/release",
    operation_id = "releaseBudget", tag = "refresh", security(("apiKey" = ["ADMIN"]), ()),
    params(("target" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses((status = 200, description = "Whether there was a hold.", body = HoldLifted))
)]
pub(crate) async fn release(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<HoldLifted>> {
    caller.need_for_all(Role::Admin)?;
    let known = app.config.budgets.keys().find(|target| target.as_str() == name);
    let (Some(target), Some(budgets)) = (known, app.budgets.as_deref()) else {
        let known: Vec<&str> = app.config.budgets.keys().map(TargetId::as_str).collect();
        let known = match known.is_empty() {
            true => "none".to_owned(),
            false => known.join(", "),
        };
        let detail = format!("target {name:?} has no budget; targets with a budget are: {known}");
        return Err(ApiError::new(UNKNOWN_TARGET, detail));
    };
    let command = AuditedCommand::new("budget.release", target).because(reason.why);
    let lifted = app
        .audited(&caller, command, async { Ok(budgets.lift(target).await?) })
        .await?;
    Ok(Json(HoldLifted {
        target: name,
        was_held: lifted,
    }))
}

fn roles(roles: Roles) -> Vec<RefreshRole> {
    let all = [
        (RefreshRole::Query, roles.query),
        (RefreshRole::Work, roles.work),
        (RefreshRole::Plan, roles.plan),
    ];
    let played = all.into_iter().filter(|(_, played)| *played);
    played.map(|(role, _)| role).collect()
}

/// Lists the sources of records.
#[utoipa::path(
    get, path = "/v1/sources",
    operation_id = "listSources", tag = "refresh", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "Every configured source, on one page.", body = Page<Source>))
)]
pub(crate) async fn sources(State(app): State<App>, caller: Caller) -> ApiResult<Json<Page<Source>>> {
    caller.need_for_all(Role::Read)?;
    let sources = app.config.sources.iter().map(|(name, settings)| {
        let tiers = app.config.tiers_of(settings);
        Source {
            name: name.as_str().to_owned(),
            budget: settings.target.clone(),
            address: origin(&settings.url),
            fields: settings.fields.clone(),
            projection_version: settings.projection_version,
            prefetch: settings.prefetch,
            hot_fresh_ms: tiers.hot_fresh_ms.0,
            warm_fresh_ms: tiers.warm_fresh_ms.0,
            cold_fresh_ms: tiers.cold_fresh_ms.0,
        }
    });
    Ok(Json(Page {
        items: sources.collect(),
        next: None,
    }))
}

/// The origin of a URL. Its path and query may hold a secret.
fn origin(url: &str) -> String {
    match reqwest::Url::parse(url) {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => String::new(),
    }
}
