//! The OpenAPI 3.1 document: everything beside the descriptions that the handlers carry themselves.

mod problems;

use problems::Facts;
use serde_json::Value;
use tidegate_api::Problem;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{HttpMethod, Operation, Parameter};
use utoipa::openapi::schema::{ArrayItems, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    InfoBuilder, KnownFormat, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response,
    ResponseBuilder, Schema, ServerBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::{KINDS, Kind};

const SCHEMAS: &str = "#/components/schemas/";
/// Generators name a page of groups `GroupPage`; utoipa writes `Page_Group`.
const PAGE: &str = "Page_";
/// What was skipped names its item.
const SKIPPED: &str = "DeadSkipped_";
/// Other generic schemas, and what they are called.
const GENERIC_NAMES: [(&str, &str); 4] = [
    ("DeadOutcome_DeadLetterName", "DeadLettersOutcome"),
    ("DeadOutcome_JobName", "DeadJobsOutcome"),
    ("DeadSkipped_DeadLetterName", "DeadLetterSkipped"),
    ("DeadSkipped_JobName", "DeadJobSkipped"),
];

const ABOUT: &str = "\
Tidegate runs bulk jobs fairly and within rate limits, refreshes cached records within a provider's budget, and puts visitors \
into waiting rooms.

Times are RFC 3339 in UTC. Durations are milliseconds. Field names are camelCase, and enum values are UPPER_SNAKE_CASE. Clients \
should ignore fields that they do not know.

Listings answer one page at a time: pass `next` of a page as `cursor` to read the following one.

Streams are server-sent events (`text/event-stream`). The data of each event is one JSON value. The service sends a comment \
as a heartbeat when there is nothing else to send.

Errors are `application/problem+json` (RFC 9457). Every answer has the header `x-request-id`, and a problem repeats it as \
`requestId`; the service's log has it, too. A problem's `code` stays the same between versions. The codes are";

/// Every tag, in the order of the documentation.
const TAGS: [(&str, &str); 15] = [
    (
        "groups",
        "Groups are customers, the unit of fairness: each one gets its share of the rate.",
    ),
    (
        "congestion",
        "How much throttling by downstream services delays groups.",
    ),
    (
        "batches",
        "Batches are bulk submissions of a group, the unit of progress and completion.",
    ),
    (
        "jobs",
        "Jobs are units of work that belong to a group and a batch.",
    ),
    (
        "workers",
        "Workers lease jobs, extend their leases and settle them.",
    ),
    (
        "dead jobs",
        "Dead jobs failed for good, expired or were cancelled. Operators replay or purge them.",
    ),
    (
        "limits",
        "The rates of the whole system and of queues, and their change at run time.",
    ),
    (
        "records",
        "Records are cached data in front of a limited API. Reading a stale one requests a refresh.",
    ),
    (
        "refresh",
        "The refresh module as a whole: sources, budgets and dead letters.",
    ),
    ("rooms", "Waiting rooms as operators see and control them."),
    ("shops", "What a shop does with a visitor's pass."),
    ("statistics", "Statistics of the whole system."),
    (
        "targets",
        "Push targets: the services that Tidegate calls with jobs.",
    ),
    ("service", "The caller's identity and the audit log."),
    (
        "visitors",
        "What a visitor's browser requests from a waiting room. A cookie or a token of the shop identifies the visitor.",
    ),
];

/// The descriptions of path parameters.
const NAMES: [(&str, &str); 9] = [
    ("group", "The group's id."),
    ("batch", "The batch's id, unique within its group."),
    ("job", "The job's id, unique within its group."),
    ("source", "The name of a source in the configuration."),
    ("key", "The record's key, unique within its source."),
    ("target", "The target's name in the configuration."),
    ("position", "The dead letter's position, like `3-17`."),
    ("room", "The room's name."),
    ("queue", "The queue's name."),
];

/// Bodies whose fields all have defaults: clients may leave them out.
const OPTIONAL_BODIES: [&str; 5] = ["Reason", "RoomCommand", "OpenBatch", "Lease", "JoinRoom"];

/// The document before the routes are added.
pub(crate) fn head() -> OpenApi {
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Tidegate")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(format!("{ABOUT} {}.", codes())))
                .license(Some(
                    LicenseBuilder::new()
                        .name("Apache License 2.0 or MIT License")
                        .identifier(Some("Apache-2.0 OR MIT"))
                        .build(),
                ))
                .build(),
        )
        .servers(Some([ServerBuilder::new()
            .url("/")
            .description(Some("The service that serves this document"))
            .build()]))
        .tags(Some(TAGS.map(|(name, description)| {
            TagBuilder::new()
                .name(name)
                .description(Some(description))
                .build()
        })))
        .build()
}

/// Every code with its status.
fn codes() -> String {
    let code = |Kind(status, code, _): &Kind| format!("`{code}` ({})", status.as_u16());
    KINDS.iter().map(code).collect::<Vec<_>>().join(", ")
}

/// Adds what operations have in common: problems, roles, and descriptions of path parameters.
pub(crate) fn finish(mut document: OpenApi) -> OpenApi {
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in [
            (HttpMethod::Get, &mut item.get),
            (HttpMethod::Put, &mut item.put),
            (HttpMethod::Post, &mut item.post),
            (HttpMethod::Patch, &mut item.patch),
            (HttpMethod::Delete, &mut item.delete),
        ] {
            if let Some(operation) = operation {
                complete(path, method != HttpMethod::Get, operation);
            }
        }
    }
    let components = document.components.get_or_insert_default();
    components
        .schemas
        .insert(Problem::name().into_owned(), Problem::schema());
    components.add_security_scheme(
        "apiKey",
        SecurityScheme::Http(
            HttpBuilder::new()
                .scheme(HttpAuthScheme::Bearer)
                .description(Some(
                    "An API key as `Authorization: Bearer tg_…`. The service also takes it in the header `x-api-key`. \
                     Requests need no key while the configuration has none.",
                ))
                .build(),
        ),
    );
    components.add_security_scheme(
        "visitorCookie",
        SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::with_description(
            "tidegate_ticket",
            "The cookie that the service gives a visitor's browser. Over HTTPS its name is `__Host-tidegate_ticket`.",
        ))),
    );
    name_generics(&mut document);
    document
}

fn complete(path: &str, changes: bool, operation: &mut Operation) {
    let roles = roles(operation);
    if let [role] = &roles.as_deref().unwrap_or_default() {
        let needs = format!("Requires a key with the role `{role}`.");
        let described = operation.description.take().filter(|text| !text.is_empty());
        operation.description = Some(described.map_or(needs.clone(), |text| format!("{text}\n\n{needs}")));
    }
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(Parameter {
            name, description, ..
        }) = parameter
        else {
            continue;
        };
        let meaning = NAMES.iter().find(|(known, _)| known == name);
        *description = description.take().or(meaning.map(|(_, text)| (*text).to_owned()));
    }
    let optional = body(operation).is_some_and(|name| OPTIONAL_BODIES.contains(&name));
    if let (true, Some(RefOr::T(body))) = (optional, &mut operation.request_body) {
        body.required = Some(Required::False);
    }
    let parameters = || operation.parameters.iter().flatten();
    let named = |wanted: &str| parameters().any(|one| matches!(one, RefOr::T(one) if one.name == wanted));
    let facts = Facts {
        path,
        id: operation.operation_id.as_deref().unwrap_or_default(),
        changes,
        keyed: roles.is_some(),
        admin: roles.iter().flatten().any(|role| role == "ADMIN"),
        body: operation.request_body.is_some(),
        parameters: parameters().next().is_some(),
        cursor: named("cursor"),
        stream: streams(operation),
    };
    for (status, kinds) in facts.problems() {
        operation
            .responses
            .responses
            .insert(status.to_string(), RefOr::T(problem(status, &kinds)));
    }
}

/// The roles that a key needs for an operation; none if it needs no key.
fn roles(operation: &Operation) -> Option<Vec<String>> {
    let requirements = serde_json::to_value(&operation.security).ok()?;
    let roles = requirements
        .as_array()?
        .iter()
        .find_map(|one| one.get("apiKey"))?;
    let name = |role: &Value| role.as_str().map(str::to_owned);
    Some(roles.as_array()?.iter().filter_map(name).collect())
}

/// The name of the schema of an operation's body, if it is JSON.
fn body(operation: &Operation) -> Option<&str> {
    let RefOr::T(body) = operation.request_body.as_ref()? else {
        return None;
    };
    let RefOr::T(content) = body.content.get("application/json")? else {
        return None;
    };
    match content.schema.as_ref()? {
        RefOr::Ref(schema) => schema.ref_location.strip_prefix(SCHEMAS),
        RefOr::T(_) => None,
    }
}

fn streams(operation: &Operation) -> bool {
    operation.responses.responses.values().any(|response| {
        matches!(response, RefOr::T(response) if response.content.contains_key("text/event-stream"))
    })
}

fn problem(status: u16, kinds: &[Kind]) -> Response {
    let sentence = |Kind(_, code, title): &Kind| format!("`{code}`: {title}.");
    let description = kinds.iter().map(sentence).collect::<Vec<_>>().join(" ");
    let content = ContentBuilder::new()
        .schema(Some(RefOr::Ref(Ref::from_schema_name(Problem::name()))))
        .build();
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content);
    if !problems::says_when(status, kinds) {
        return response.build();
    }
    let seconds = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(0));
    let header = HeaderBuilder::new()
        .schema(Some(seconds))
        .description(Some("After how many seconds the same request may succeed."));
    response.header("Retry-After", header.build()).build()
}

/// Names generic schemas as people would, and lets them refer to their items' schema instead of repeating it.
fn name_generics(document: &mut OpenApi) {
    let items = document.paths.paths.values_mut();
    let operations = items.flat_map(|item| {
        [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.patch,
            &mut item.delete,
        ]
    });
    for operation in operations.flatten() {
        for response in operation.responses.responses.values_mut() {
            let RefOr::T(response) = response else { continue };
            for content in response.content.values_mut() {
                if let RefOr::T(content) = content
                    && let Some(schema) = &mut content.schema
                {
                    name_plainly(schema);
                }
            }
        }
    }
    let Some(components) = &mut document.components else {
        return;
    };
    let schemas = std::mem::take(&mut components.schemas);
    for (name, mut schema) in schemas {
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.properties.values_mut().for_each(name_plainly);
            if let Some(item) = name.strip_prefix(PAGE)
                && let Some(RefOr::T(Schema::Array(items))) = object.properties.get_mut("items")
            {
                items.items = ArrayItems::RefOrSchema(Box::new(RefOr::Ref(Ref::from_schema_name(item))));
            }
            if let Some(item) = name.strip_prefix(SKIPPED)
                && let Some(named) = object.properties.get_mut("item")
            {
                *named = RefOr::Ref(Ref::from_schema_name(item));
            }
        }
        let name = plain_name(&name).unwrap_or(name);
        components.schemas.insert(name, schema);
    }
}

fn name_plainly(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::Ref(schema) => {
            if let Some(name) = schema.ref_location.strip_prefix(SCHEMAS).and_then(plain_name) {
                schema.ref_location = format!("{SCHEMAS}{name}");
            }
        }
        RefOr::T(Schema::Array(array)) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                name_plainly(items);
            }
        }
        RefOr::T(_) => {}
    }
}

/// The name of a generic schema, without the underscore that utoipa writes.
fn plain_name(name: &str) -> Option<String> {
    if let Some(item) = name.strip_prefix(PAGE) {
        return Some(format!("{item}Page"));
    }
    let found = GENERIC_NAMES.iter().find(|(generic, _)| *generic == name);
    found.map(|(_, plain)| (*plain).to_owned())
}

#[cfg(test)]
mod tests;
