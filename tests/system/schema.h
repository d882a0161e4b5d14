// Compares a listing with its schema in docs/reference.
//
// Concept. The part of JSON Schema that our schemas use: type, properties, required,
// additionalProperties, items, enum, const, minimum and $ref to a file beside. A keyword that is
// not understood is a fault too, so a schema never promises what is not checked.
//
// Threading: pure but for reading files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace switchyard::system_tests {

// docs/reference/NAME.schema.json.
nlohmann::json read_schema(const std::string& name);

// Each way in which `value` differs from `schema`, with its place; empty: it does not.
std::vector<std::string> differences(const nlohmann::json& value, const nlohmann::json& schema);

}  // namespace switchyard::system_tests
