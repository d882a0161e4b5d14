// Which jobs of a listing a command means: one grammar for every command that takes jobs.
//
// Concept.
//
//     selection  =  { word } { option }
//     word       =  name | id | PID | glob | beginning of an id
//     option     =  --all | --user USER,... | --gpu GPU,... | --state STATE,...
//
// The words name jobs. A job must also fit each option; where no word is, all jobs are named. Each
// job is meant once, in the order of the listing. The first row that holds says what a word means:
//
//     the word                           means
//     is the name or the id of a job     that job
//     has a '*' or a '?'                 each job whose name or id fits: at least one
//     is a number                        the job of the process with that PID
//     begins the id of one job           that job
//     begins the ids of several          an error that names them
//     nothing of these                   an error: no such job
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/base/result.h"

namespace switchyard::tools {

struct Selection {
  std::vector<std::string> words;
  std::string users, gpus, states;  // as after the options; empty: any
  bool all = false;
  std::string command;  // that takes it, for messages

  bool has_option() const { return all || !users.empty() || !gpus.empty() || !states.empty(); }
  bool means_all() const { return words.empty() && !has_option(); }
  // Whether it may mean jobs that nobody has named one by one.
  bool is_pattern() const;
};

// Whether `text` fits: '*' is any text, '?' one character.
bool fits_glob(const std::string& text, const std::string& glob);

// Whether the job has, or had, work or memory on this GPU of its list.
bool is_on(const nlohmann::json& gpu);

// Whether a text may name a GPU, by its index or the beginning of its UUID; and whether it names
// this one.
bool may_name_gpu(const std::string& text);
bool names_gpu(const std::string& text, const nlohmann::json& gpu);

// The meant ones of `jobs`, as places in it.
Result<std::vector<std::size_t>> select(const nlohmann::json& jobs, const Selection& selection);

}  // namespace switchyard::tools
