// Kernel specs that are wrapped: what stays, what is put before, and what is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tools/base/write_file.h"
#include "tools/jupyter/kernels.h"

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Jupyter : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "jupyter-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    for (const char* each : kVariables) ::unsetenv(each);
  }
  void TearDown() override {
    for (const char* each : kVariables) ::unsetenv(each);
    fs::remove_all(folder);
  }
  void add(const fs::path& kernels, const std::string& name, const std::string& text) const {
    fs::create_directories(kernels / name);
    std::ofstream(kernels / name / "kernel.json") << text;
  }
  fs::path in_prefix() const { return folder / "share/jupyter/kernels"; }

  static constexpr const char* kVariables[] = {"JUPYTER_DATA_DIR", "JUPYTER_PATH", "VIRTUAL_ENV",
                                               "CONDA_PREFIX", "XDG_DATA_HOME"};
  fs::path folder;
};

constexpr char kSpec[] = R"({"argv": ["/opt/R", "--slave", "{connection_file}"],
  "display_name": "R", "language": "R", "env": {"A": "1"}, "interrupt_mode": "message",
  "metadata": {"debugger": true}})";

TEST_F(Jupyter, AllOfASpecStaysButItsCommandAndItsName) {
  add(folder, "ir", kSpec);
  const auto spec = find_kernel("ir", {folder});
  ASSERT_TRUE(spec) << spec.error().text;
  json expected = json::parse(kSpec);
  expected["argv"] = {"switchyard", "run", "--", "/opt/R", "--slave", "{connection_file}"};
  expected["display_name"] = "R, small";
  expected["metadata"]["switchyard"] = {{"from", "ir"}};
  EXPECT_EQ(wrapped_kernel(*spec, "small", {"switchyard", "run", "--"}), expected);
}

TEST_F(Jupyter, AMinimalSpecWillDo) {
  add(folder, "min", R"({"argv": ["x"]})");
  const json made = wrapped_kernel(*find_kernel("min", {folder}), "n", {"run"});
  EXPECT_EQ(made["display_name"], "min, n");
  EXPECT_EQ(made["argv"], json({"run", "x"}));
}

// Jupyter replaces the word where it stands first, which is no longer so.
TEST_F(Jupyter, PythonIsThatOfTheEnvironmentWhoseSpecItIs) {
  fs::create_directories(folder / "bin");
  const fs::path python = folder / "bin/python3";
  std::ofstream(python) << "";
  fs::permissions(python, fs::perms::owner_all);
  const auto program = [&](const fs::path& kernels, const std::string& word) {
    add(kernels, "k", json{{"argv", {word, "-m", "ipykernel_launcher"}}}.dump());
    return wrapped_kernel(*find_kernel("k", {kernels}), "n", {"run"})["argv"][1];
  };
  EXPECT_EQ(program(in_prefix(), "python3"), python.string());
  EXPECT_EQ(program(in_prefix(), "python3.99"), "python3.99") << "there is none";
  EXPECT_EQ(program(in_prefix(), "pythonic"), "pythonic");
  EXPECT_EQ(program(in_prefix(), "/usr/bin/python3"), "/usr/bin/python3");
  EXPECT_EQ(program(folder / "other", "python3"), "python3") << "of no environment";
}

TEST_F(Jupyter, TheFirstFolderWinsInTheOrderOfJupyter) {
  ::setenv("JUPYTER_PATH", "/a::/b", 1);
  ::setenv("VIRTUAL_ENV", "/venv", 1);
  ::setenv("JUPYTER_DATA_DIR", "/data", 1);
  const auto folders = kernel_folders("/prefix/");
  const std::vector<fs::path> first = {"/prefix/share/jupyter/kernels", "/a/kernels", "/b/kernels",
                                       "/venv/share/jupyter/kernels", "/data/kernels"};
  ASSERT_GT(folders.size(), first.size());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), folders.begin()));
  EXPECT_EQ(folders.back(), "/usr/share/jupyter/kernels");
  add(folder / "1", "k", R"({"argv": ["one"]})");
  add(folder / "2", "k", R"({"argv": ["two"]})");
  EXPECT_EQ(find_kernel("k", {folder / "0", folder / "1", folder / "2"})->content["argv"][0],
            "one");
}

TEST_F(Jupyter, TheFolderOfTheUserIsJupyters) {
  ::setenv("JUPYTER_DATA_DIR", "/data", 1);
  EXPECT_EQ(jupyter_user_folder(), "/data");
  ::unsetenv("JUPYTER_DATA_DIR");
  ::setenv("XDG_DATA_HOME", "/xdg", 1);
  EXPECT_EQ(jupyter_user_folder(), "/xdg/jupyter");
  ::unsetenv("XDG_DATA_HOME");
  EXPECT_EQ(jupyter_user_folder(), fs::path(std::getenv("HOME")) / ".local/share/jupyter");
}

TEST_F(Jupyter, WhatIsNoSpecIsRefusedWithItsPlace) {
  const auto text = [this](const std::string& name) {
    const auto found = find_kernel(name, {folder});
    return found ? "" : found.error().text;
  };
  EXPECT_NE(text("none").find("no kernel 'none' in " + folder.string()), std::string::npos);
  for (const char* bad :
       {"", "[]", "{", "{}", R"({"argv": []})", R"({"argv": "x"})", R"({"argv": [1]})"}) {
    add(folder, "bad", bad);
    EXPECT_NE(text("bad").find((folder / "bad/kernel.json").string()), std::string::npos) << bad;
  }
  add(folder, "ours", R"({"argv": ["x"], "metadata": {"switchyard": {}}})");
  EXPECT_NE(text("ours").find("already"), std::string::npos);
}

TEST_F(Jupyter, ASpecThatCannotBeWrittenLeavesNoDraft) {
  const std::string file = (folder / "k/kernel.json").string();
  fs::create_directory(folder / "k");
  fs::create_symlink("/dev/full", file + ".new");
  const auto failed = write_file(file, "{}");
  ASSERT_TRUE(failed);
  EXPECT_NE(failed->text.find("No space left"), std::string::npos) << failed->text;
  EXPECT_TRUE(fs::is_empty(folder / "k"));
}

TEST_F(Jupyter, OnlyASpecOfOursIsReplaced) {
  EXPECT_FALSE(is_of_others(folder / "none"));
  EXPECT_FALSE(is_of_others(folder)) << "without a spec, as an install that failed leaves it";
  add(folder, "k", R"({"argv": ["x"]})");
  EXPECT_TRUE(is_of_others(folder / "k"));
  add(folder, "k", R"({"argv": ["x"], "metadata": 7})");
  EXPECT_TRUE(is_of_others(folder / "k"));
  std::ofstream(folder / "k/kernel.json")
      << wrapped_kernel({folder / "k", {{"argv", {"x"}}}}, "n", {"run"});
  EXPECT_FALSE(is_of_others(folder / "k"));
}

}  // namespace
}  // namespace switchyard::tools
