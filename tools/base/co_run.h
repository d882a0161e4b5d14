// Jobs that would do more in an island: whose kernels leave room for each other on one GPU.
//
// Concept. The busy part of a job is the part of the time for which it would use the GPU if it were
// alone. It is the time that it had, and that for which it waited for slices and turns of others.
//
//     jobs of one user and class that work on one GPU, in no island    says
//     fewer than two, or of priority high                              nothing
//     their busy parts add up to less than 1.3                         run --co-run
//     each brings no work for half of the time                         likewise
//     else                                                             nothing
//
// From 1.3 on they fill the GPU by slices, too, and at once they only slow each other down.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace switchyard::tools {

// A job on the one GPU that it uses.
struct Tenant {
  std::string job, name, user, priority, island, gpu;
  double busy = 0;  // its busy part, as above
  double cpu = 0;   // of the time, in which nothing held it and it brought no work
};

struct Company {
  std::vector<Tenant> jobs;
  double busy = 0;
};
std::vector<Company> companies_of(const std::vector<Tenant>& tenants);

// Those of `ps` that work, by their whole lives.
std::vector<Tenant> tenants_of(const nlohmann::json& jobs);
// The same by `rates`, the jobs of rates() between an earlier listing and this one.
std::vector<Tenant> tenants_of(const nlohmann::json& jobs, const nlohmann::json& rates);

// "together a and b keep 0.80 of GPU 0 busy; ...", without a full stop.
std::string company_text(const Company& company);

}  // namespace switchyard::tools
