// A report of the monitor as a table of at most 80 columns, and as comma-separated values.
//
// Threading: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// `by`: job, user, gpu, day or slurmjob.
std::string report_table(const std::string& by, const nlohmann::json& reply);
// Rows of unmanaged processes stand behind those of jobs, with "managed" false.
std::string report_csv(const std::string& by, const nlohmann::json& rows,
                       const nlohmann::json& unmanaged = nlohmann::json::array());
// Adds to a row of the listing by how much its GPU time may be wrong.
void add_error(nlohmann::json& row);
// The bill of one job, in a few lines, for the end of `run --report`.
std::string bill_text(const nlohmann::json& row);

}  // namespace switchyard::tools
