//! What the description of the server says of a request's fields, for the tests that hold readers against it.

use serde_json::Value;

/// The fields that a body sent to this path may have.
pub fn fields(path: &str) -> Value {
    let described: Value = serde_json::from_str(include_str!("../serve/openapi.json")).unwrap();
    let content = &described["paths"][path]["post"]["requestBody"]["content"];
    let name = content["application/json"]["schema"]["$ref"].as_str();
    let name = name.unwrap().rsplit('/').next().unwrap();
    described["components"]["schemas"][name]["properties"].clone()
}
