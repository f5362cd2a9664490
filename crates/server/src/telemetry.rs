//! Traces for an OTLP collector: a span for every request and every call of a target.
//!
//! Only a build with the feature `otlp` exports them. A build without it refuses a configured collector at start instead of
//! ignoring it. Every build makes the spans, because log lines carry their fields, such as the request's id.

use axum::http::HeaderMap;
use tracing::{Span, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::config::TracingConfig;

/// A layer for the subscriber, beside the one that writes the log.
pub type Traces<S> = Box<dyn Layer<S> + Send + Sync>;

/// Returns the layer that exports spans to the configured collector; `None` without a collector.
///
/// The guard exports the remaining spans when it is dropped. Keep it until everything else has ended, and drop it outside
/// of async code, because it blocks.
pub fn layer<S>(config: &TracingConfig) -> Result<Option<(Traces<S>, Guard)>, String>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    match &config.otlp_endpoint {
        None => Ok(None),
        Some(endpoint) => sender::layer(endpoint).map(Some),
    }
}

pub use sender::Guard;

/// The span of one request. The caller records `status` with the response.
pub(crate) fn request_span(method: &str, route: Option<&str>, id: &str, headers: &HeaderMap) -> Span {
    let route = route.unwrap_or("none");
    let span = tracing::info_span!(
        "request",
        otel.name = tracing::field::Empty,
        otel.kind = tracing::field::Empty,
        method,
        route,
        id,
        status = tracing::field::Empty,
    );
    sender::name(&span, "server", || format!("{method} {route}"));
    sender::adopt(&span, headers);
    span
}

/// The span of one call of a target. The caller records `status` with the response.
pub fn push_span(target: &str, group: &str, job: &str, attempt: u32) -> Span {
    let span = tracing::info_span!(
        "push",
        otel.name = tracing::field::Empty,
        otel.kind = tracing::field::Empty,
        target,
        group,
        job,
        attempt,
        status = tracing::field::Empty,
    );
    sender::name(&span, "client", || format!("push {target}"));
    span
}

/// The header `traceparent` of the current span, for calls inside it. `None` without tracing.
pub fn traceparent() -> Option<String> {
    sender::traceparent(&Span::current())
}

#[cfg(feature = "otlp")]
mod sender {
    //! Exports the spans to the collector.

    use std::time::Duration;

    use axum::http::HeaderMap;
    use opentelemetry::propagation::{Extractor, TextMapPropagator};
    use opentelemetry::trace::{TraceContextExt, TracerProvider};
    use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::{Span, Subscriber};
    use tracing_opentelemetry::OpenTelemetrySpanExt;
    use tracing_subscriber::Layer;
    use tracing_subscriber::registry::LookupSpan;

    use super::Traces;

    /// Limit: how long one export may take, the last one included.
    const LONGEST: Duration = Duration::from_secs(5);

    /// Exports the remaining spans when it is dropped.
    #[derive(Debug)]
    pub struct Guard(SdkTracerProvider);

    impl Drop for Guard {
        fn drop(&mut self) {
            if let Err(error) = self.0.shutdown_with_timeout(LONGEST) {
                tracing::warn!(%error, "failed to export the last spans");
            }
        }
    }

    pub(super) fn layer<S>(endpoint: &str) -> Result<(Traces<S>, Guard), String>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let wanted = "it must be like http://127.0.0.1:4318";
        let url = reqwest::Url::parse(endpoint)
            .map_err(|error| format!("tracing.otlp_endpoint = {endpoint:?}: {error}; {wanted}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(format!("tracing.otlp_endpoint = {endpoint:?}: {wanted}"));
        }
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client()?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(LONGEST)
            .build()
            .map_err(|error| format!("tracing.otlp_endpoint = {endpoint:?}: {error}"))?;
        let resource =
            Resource::builder()
                .with_service_name("tidegate")
                .with_attribute(opentelemetry::KeyValue::new(
                    "service.version",
                    env!("CARGO_PKG_VERSION"),
                ));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tidegate"));
        // Only spans of this program: a request of the exporter itself must not become a span that it exports.
        let ours = tracing_subscriber::filter::filter_fn(|about| {
            about.is_span() && about.target().starts_with("tidegate")
        });
        Ok((Box::new(layer.with_filter(ours)), Guard(provider)))
    }

    /// Makes the HTTP client of the exporter. It is a blocking one, because the exporter's thread has no runtime. A thread of
    /// its own makes it, because a runtime must not.
    fn client() -> Result<reqwest::blocking::Client, String> {
        let make = || {
            // Fails if a provider is installed already, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
            reqwest::blocking::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .timeout(LONGEST)
                .build()
        };
        let made = std::thread::spawn(make).join();
        made.map_err(|_| "cannot make the HTTP client for traces".to_owned())?
            .map_err(|error| format!("cannot make the HTTP client for traces: {error}"))
    }

    struct Headers<'a>(&'a HeaderMap);

    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key)?.to_str().ok()
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(|name| name.as_str()).collect()
        }
    }

    /// Sets the name that collectors show. Log lines carry the same data already.
    pub(super) fn name(span: &Span, kind: &str, name: impl FnOnce() -> String) {
        span.record("otel.name", name()).record("otel.kind", kind);
    }

    /// Continues the caller's trace, if the request names one.
    pub(super) fn adopt(span: &Span, headers: &HeaderMap) {
        let caller = TraceContextPropagator::new().extract(&Headers(headers));
        if caller.span().span_context().is_valid() {
            // Fails without a tracing layer, which is fine.
            let _ = span.set_parent(caller);
        }
    }

    pub(super) fn traceparent(span: &Span) -> Option<String> {
        let context = span.context();
        if !context.span().span_context().is_valid() {
            return None;
        }
        let mut headers = std::collections::HashMap::new();
        TraceContextPropagator::new().inject_context(&context, &mut headers);
        headers.remove("traceparent")
    }
}

#[cfg(not(feature = "otlp"))]
mod sender {
    //! Exports nothing.

    use axum::http::HeaderMap;
    use tracing::Span;

    use super::Traces;

    /// Has nothing to export.
    #[derive(Debug)]
    pub struct Guard(());

    pub(super) fn layer<S>(endpoint: &str) -> Result<(Traces<S>, Guard), String> {
        Err(format!(
            "tracing.otlp_endpoint = {endpoint:?}: this program was built without the feature otlp, so it cannot send \
             traces; build it with `--features otlp`, or remove the setting"
        ))
    }

    pub(super) fn name(_: &Span, _: &str, _: impl FnOnce() -> String) {}

    pub(super) fn adopt(_: &Span, _: &HeaderMap) {}

    pub(super) fn traceparent(_: &Span) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Registry;

    use super::*;

    #[test]
    fn without_a_collector_there_is_no_layer() {
        assert!(layer::<Registry>(&TracingConfig::default()).unwrap().is_none());
    }

    #[test]
    fn a_collector_that_cannot_be_used_is_refused() {
        let refused = |endpoint: &str| {
            let config = TracingConfig {
                otlp_endpoint: Some(endpoint.into()),
            };
            layer::<Registry>(&config).err().unwrap()
        };
        let error = refused("nowhere");
        assert!(
            error.starts_with("tracing.otlp_endpoint = \"nowhere\": "),
            "{error}"
        );
        #[cfg(not(feature = "otlp"))]
        assert!(refused("http://127.0.0.1:4318").contains("--features otlp"));
        #[cfg(feature = "otlp")]
        assert!(refused("ftp://127.0.0.1").contains("http://127.0.0.1:4318"));
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn a_request_continues_the_trace_of_its_caller() {
        use tracing_subscriber::layer::SubscriberExt;
        // Nobody listens on this port. The test does not wait for it, because the span outlives the guard.
        let config = TracingConfig {
            otlp_endpoint: Some("http://127.0.0.1:9".into()),
        };
        let (layer, _guard) = layer(&config).unwrap().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let trace = "0af7651916cd43dd8448eb211c80319c";
            let mut headers = HeaderMap::new();
            let value = format!("00-{trace}-b7ad6b7169203331-01");
            headers.insert("traceparent", value.parse().unwrap());
            let span = request_span("GET", Some("/v1/stats"), "id", &headers);
            let passed_on = span.in_scope(traceparent).unwrap();
            assert_eq!(passed_on.split('-').nth(1), Some(trace));
            assert_ne!(passed_on, value);
            let own = request_span("GET", None, "id", &HeaderMap::new()).in_scope(traceparent);
            assert_ne!(own.unwrap().split('-').nth(1), Some(trace));
        });
    }
}
