#include "tests/system/schema.h"

#include <algorithm>
#include <fstream>

namespace switchyard::system_tests {
namespace {

using nlohmann::json;

class Comparison {
 public:
  std::vector<std::string> found;

  void compare(const json& value, const json& schema, const std::string& place) {
    for (const auto& [keyword, operand] : schema.items()) {
      check(keyword, operand, value, schema, place);
    }
  }

 private:
  void complain(const std::string& place, const std::string& what) {
    found.push_back((place.empty() ? "the listing" : place) + ": " + what);
  }

  static bool has_type(const json& value, const std::string& type) {
    if (type == "null") return value.is_null();
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    return type == "number" && value.is_number();
  }

  void check(const std::string& keyword, const json& operand, const json& value, const json& schema,
             const std::string& place) {
    if (keyword == "$schema" || keyword == "title" || keyword == "description") return;
    if (keyword == "$ref") {
      const std::string file = operand.get<std::string>();
      compare(value, read_schema(file.substr(0, file.find(".schema.json"))), place);
    } else if (keyword == "type") {
      const json types = operand.is_array() ? operand : json::array({operand});
      const bool fits = std::any_of(types.begin(), types.end(),
                                    [&](const json& type) { return has_type(value, type); });
      if (!fits) complain(place, value.dump() + " is not of type " + operand.dump());
    } else if (keyword == "enum") {
      const bool listed = std::find(operand.begin(), operand.end(), value) != operand.end();
      if (!listed) complain(place, value.dump() + " is none of " + operand.dump());
    } else if (keyword == "const") {
      if (value != operand) complain(place, value.dump() + " is not " + operand.dump());
    } else if (keyword == "minimum") {
      if (value.is_number() && value < operand) complain(place, value.dump() + " is too small");
    } else if (keyword == "required") {
      for (const auto& key : operand) {
        if (value.is_object() && !value.contains(key)) complain(place, "lacks " + key.dump());
      }
    } else if (keyword == "properties" || keyword == "additionalProperties") {
      // Both are dealt with together, once.
      if (keyword == "properties" || !schema.contains("properties")) members(value, schema, place);
    } else if (keyword == "items") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
        compare(value[i], operand, place + "[" + std::to_string(i) + "]");
      }
    } else {
      complain(place, "the schema has the keyword " + keyword + ", which nobody checks");
    }
  }

  void members(const json& value, const json& schema, const std::string& place) {
    if (!value.is_object()) return;
    const json known = schema.value("properties", json::object());
    const json others = schema.value("additionalProperties", json(true));
    for (const auto& [key, member] : value.items()) {
      const std::string at = place + "." + key;
      if (known.contains(key)) {
        compare(member, known[key], at);
      } else if (others.is_object()) {
        compare(member, others, at);
      } else if (!others.get<bool>()) {
        complain(at, "the schema does not have this key");
      }
    }
  }
};

}  // namespace

json read_schema(const std::string& name) {
  const std::string path = SWITCHYARD_SCHEMAS "/" + name + ".schema.json";
  std::ifstream file(path);
  return json::parse(file);
}

std::vector<std::string> differences(const json& value, const json& schema) {
  Comparison comparison;
  comparison.compare(value, schema, "");
  return comparison.found;
}

}  // namespace switchyard::system_tests
