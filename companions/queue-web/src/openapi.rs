//! The description of the REST API as OpenAPI 3.1, made from the table of routes.

use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::route::{Need, Route, table};

/// Schemas of answers and bodies, as far as they are promised: fields may be added.
const SCHEMAS: &str = include_str!("schemas.json");

pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for route in table() {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        operations[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": { "title": "queue-web", "version": env!("CARGO_PKG_VERSION"), "license": { "name": "MIT OR Apache-2.0" } },
        "servers": [{ "url": "./", "description": "Below /api/v1 of where the dashboard is" }],
        "security": [{ "bearer": [] }, { "basic": [] }, {}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "basic": { "type": "http", "scheme": "basic" },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let names = route.path.split(['{', '}']).skip(1).step_by(2);
    let text = json!({ "type": "string" });
    let in_path = names.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }));
    let in_query =
        route.query.iter().map(|name| json!({ "name": name, "in": "query", "required": false, "schema": text }));
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let schema = json!({ "$ref": format!("#/components/schemas/{}", route.answer) });
    let kind = match route.answer {
        "Bytes" => "application/octet-stream",
        "Stream" | "Feed" => "text/event-stream",
        _ => "application/json",
    };
    let status = match (&route.method, route.answer) {
        (_, "Enqueued" | "BatchCreated") => "201",
        (&Method::POST, "Operation") => "202",
        _ => "200",
    };
    let problem = json!({ "description": "A problem", "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } } });
    let mut operation = json!({
        "summary": route.about,
        "parameters": parameters,
        "responses": { (status): { "description": "Done", "content": { (kind): { "schema": schema } } }, "default": problem },
        "x-permission": match route.need { Need::Told => "the action's", _ => route.permission().as_str() },
    });
    // A dry run begins nothing, and what is there already is not made.
    if status == "202" || route.answer == "BatchCreated" {
        operation["responses"]["200"] = operation["responses"][status].clone();
    }
    let of = |schema: &str| json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } });
    let body = match (&route.method, route.path) {
        (&Method::POST, "/queues/{queue}/tasks") => Some(json!({
            "application/json": { "schema": { "$ref": "#/components/schemas/NewTask" } },
            "application/x-ndjson": { "schema": { "type": "string" } },
        })),
        (&Method::POST, "/queues/{queue}/bulk") => Some(of("BulkWish")),
        (&Method::POST, "/batches") => Some(of("NewBatch")),
        (&Method::POST, "/batches/{batch}/cancel" | "/batches/{batch}/retry") => Some(of("DryRun")),
        (&Method::POST, "/operations") => Some(of("OperationWish")),
        (&Method::PATCH, "/operations/{operation}") => Some(of("OperationChange")),
        (&Method::POST, "/batches/{batch}/resolve") => Some(of("Resolve")),
        (&Method::POST, "/batches/{batch}/signals/{node}") => Some(of("Signal")),
        (&Method::PUT, "/queues/{queue}/limits/{limit}") => Some(of("NewLimit")),
        (&Method::PUT, "/queues/{queue}/limits/{limit}/keys/{key}") => Some(of("LaneChange")),
        (&Method::PUT, "/queues/{queue}/tasks/{id}/payload") => {
            Some(json!({ "application/octet-stream": { "schema": {} } }))
        }
        _ => None,
    };
    if let Some(content) = body {
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// `QUEUE_WEB_WRITE=1 cargo test -p queue-web openapi` writes it anew. What is promised within v1 must not go.
    #[test]
    fn the_committed_description_is_that_of_the_routes() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if std::env::var_os("QUEUE_WEB_WRITE").is_some() {
            std::fs::write(file, &text).unwrap();
        }
        let committed = std::fs::read_to_string(file).unwrap_or_default();
        assert!(committed == text, "openapi.json differs from the routes; QUEUE_WEB_WRITE=1 writes it anew");
    }

    #[test]
    fn every_schema_that_is_named_is_there_and_the_other_way_round() {
        let text = document().to_string();
        let named: BTreeSet<&str> =
            text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let document = document();
        let there: BTreeSet<&str> =
            document["components"]["schemas"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(named, there);
    }
}
