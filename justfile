# Commands for people who work on Tidegate. `just` lists them.

_list:
    @just --list --unsorted

# Run the demo: three customers, one rate, with the dashboard
demo:
    cargo run --release -- demo

# Run the service on a temporary folder
serve:
    cargo run -- serve --set store.data='"target/data"'

# Format the code
fmt:
    cargo fmt --all

# Format, lint, and run everything that needs no server (minutes)
quick:
    scripts/test quick

# Run every check and every test; installs servers and a browser
test:
    scripts/test

# Run the tests whose full names contain a text: `just only store/it::room::redis`
only +names:
    scripts/run-tests {{names}}

# Build what is published and measured
dist:
    cargo build --profile dist --features kafka,mysql,otlp,postgres,s3

# Measure this machine
bench what="bulk":
    cargo run --profile dist -- bench {{what}}

# Check licences, sources and advisories of dependencies
deny:
    cargo deny check
