//! The API's description in OpenAPI 3.1: what stands around the handlers' own descriptions.

use tidegate_api::Problem;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, ResponseBuilder, SecurityRequirement,
};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::{KINDS, Kind};

/// What every operation may answer besides its own, with the codes that go with it.
const PROBLEMS: &[(&str, &str)] = &[
    ("400", "The request cannot be read"),
    ("401", "A key is needed"),
    ("403", "The key may not do this"),
    ("408", "The request took too long"),
    ("421", "Not a name of this service"),
    ("429", "Too many at once"),
    ("500", "Something of ours is broken"),
    (
        "503",
        "The store cannot be used now, or the service is stopping; see Retry-After",
    ),
];
/// Where there is something in the address, or a body.
const WITH_NAMES: &[(&str, &str)] = &[
    ("404", "There is no such thing"),
    ("422", "A value is out of range"),
];
const WITH_BODY: &[(&str, &str)] = &[
    ("409", "It is not in a state for this"),
    ("413", "It is too much for one request"),
    ("415", "The body is of a type that is not understood"),
    ("422", "A value is out of range"),
];

pub(crate) fn head() -> OpenApi {
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Tidegate")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(format!(
                    "Stands between a flood of work and something scarce: fair, never over a limit, nothing lost. \
                     Times are RFC 3339 in UTC, spans are milliseconds. Errors are problem+json with a `code` that \
                     stays the same between versions: {}.",
                    codes()
                )))
                .build(),
        )
        .build()
}

/// Every code with its status.
fn codes() -> String {
    let code = |Kind(status, code, _): &Kind| format!("`{code}` ({})", status.as_u16());
    KINDS.iter().map(code).collect::<Vec<_>>().join(", ")
}

/// Adds what all operations have in common.
pub(crate) fn finish(mut description: OpenApi) -> OpenApi {
    let components = description.components.get_or_insert_default();
    components
        .schemas
        .insert(Problem::name().into_owned(), Problem::schema());
    components.add_security_scheme("key", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    for (path, item) in &mut description.paths.paths {
        let names = path.contains('{');
        for operation in [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.patch,
            &mut item.delete,
        ]
        .into_iter()
        .flatten()
        {
            let query = operation.parameters.as_ref().is_some_and(|all| !all.is_empty());
            add(operation, PROBLEMS);
            if names || query {
                add(operation, WITH_NAMES);
            }
            // What is refreshed may be nothing.
            if path.starts_with("/v1/refresh") || path.starts_with("/v1/records") {
                add(operation, &WITH_NAMES[..1]);
            }
            if path.ends_with("/refresh") {
                add(
                    operation,
                    &[("409", "It is not refreshed before some time; see Retry-After")],
                );
            }
            if query {
                add(operation, &[("409", "The place in the listing is gone")]);
            }
            if operation.request_body.is_some() || path.ends_with("/seal") {
                add(operation, WITH_BODY);
            }
            operation.security = Some(vec![
                SecurityRequirement::new("key", std::iter::empty::<String>()),
                SecurityRequirement::default(),
            ]);
        }
    }
    description
}

fn add(operation: &mut Operation, problems: &[(&str, &str)]) {
    for (status, words) in problems {
        let content = ContentBuilder::new()
            .schema(Some(RefOr::Ref(Ref::from_schema_name(Problem::name()))))
            .build();
        let response = ResponseBuilder::new()
            .description(*words)
            .content("application/problem+json", content)
            .build();
        operation
            .responses
            .responses
            .entry((*status).to_owned())
            .or_insert(RefOr::T(response));
    }
}
