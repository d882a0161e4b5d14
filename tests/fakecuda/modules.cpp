#include "modules.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <regex>

#include "memory.h"

namespace fakecuda {
namespace {

struct Registry {
  std::mutex lock;
  std::set<Module*> modules;
  std::set<Kernel*> kernels;
};

Registry& registry() {
  static Registry* only = new Registry;
  return *only;
}

std::size_t size_of(const std::string& type) {
  std::size_t bits = 0;
  for (const char c : type) {
    if (isdigit(static_cast<unsigned char>(c))) bits = bits * 10 + (c - '0');
  }
  return type == ".pred" || bits == 0 ? 1 : bits / 8;
}

// One ".param .align 8 .b8 name[24]" of an entry.
void add_parameter(const std::string& text, Kernel* kernel) {
  std::size_t size = 0, alignment = 0, at = 0;
  while ((at = text.find('.', at)) != std::string::npos) {
    std::size_t end = at + 1;
    while (end < text.size() && (isalnum(static_cast<unsigned char>(text[end])))) ++end;
    const std::string word = text.substr(at, end - at);
    if (word == ".align") {
      alignment = strtoul(text.c_str() + end, nullptr, 10);
    } else if (word != ".param" && word != ".ptr" && size == 0 && word.size() > 1 &&
               strchr("busf", word[1])) {
      size = size_of(word);
    }
    at = end;
  }
  if (size == 0) return;
  if (alignment == 0) alignment = size;
  if (const std::size_t bracket = text.find('['); bracket != std::string::npos) {
    size *= strtoul(text.c_str() + bracket + 1, nullptr, 10);
  }
  kernel->argument_bytes = round_up(kernel->argument_bytes, alignment);
  kernel->offsets.push_back(kernel->argument_bytes);
  kernel->sizes.push_back(size);
  kernel->argument_bytes += size;
}

std::string without_comments(const char* text) {
  std::string out;
  for (const char* c = text; *c; ++c) {
    if (c[0] == '/' && c[1] == '/') {
      while (*c && *c != '\n') ++c;
      if (!*c) break;
    } else if (c[0] == '/' && c[1] == '*') {
      const char* end = strstr(c + 2, "*/");
      if (!end) break;
      c = end + 1;
      continue;
    }
    out += *c;
  }
  return out;
}

// As far as that shows without the driver's assembler: directives of the head stand on lines of
// their own, and a register is one word. So PTX that went through a formatter of C++ is refused.
bool looks_assembled(const std::string& image) {
  static const std::regex head(
      R"(\s*\.version[ \t]+\d+\.\d+[ \t]*\n\s*\.target[ \t]+\w+[ \t]*\n[^]*)");
  return std::regex_match(image.substr(0, 200), head) && image.find("% ") == std::string::npos;
}

void add_entry(const std::string& image, std::size_t at, Module* module) {
  auto is_space = [](char c) { return isspace(static_cast<unsigned char>(c)); };
  while (at < image.size() && is_space(image[at])) ++at;
  std::size_t end = at;
  while (end < image.size() && !is_space(image[end]) && image[end] != '(' && image[end] != '{') {
    ++end;
  }
  auto* kernel = kept(new Kernel);
  kernel->name = image.substr(at, end - at);
  kernel->module = module;
  while (end < image.size() && is_space(image[end])) ++end;
  if (end < image.size() && image[end] == '(') {
    const std::size_t close = image.find(')', end);
    std::string list = image.substr(end + 1, close - end - 1) + ",";
    for (std::size_t from = 0, comma; (comma = list.find(',', from)) != std::string::npos;
         from = comma + 1) {
      add_parameter(list.substr(from, comma - from), kernel);
    }
  }
  // Its depots, as `.local .align 16 .b8 name[48000];`.
  const std::string body = image.substr(end, image.find(".entry", end) - end);
  static const std::regex depot(R"(\.local\s+\.align\s+\d+\s+\.b8\s+\w+\[(\d+)\])");
  for (std::sregex_iterator each(body.begin(), body.end(), depot), none; each != none; ++each) {
    kernel->local_bytes += std::stoi((*each)[1]);
  }
  module->kernels.push_back(kernel);
}

}  // namespace

Kernel* Module::find(const std::string& name) const {
  for (Kernel* kernel : kernels) {
    if (kernel->name == name) return kernel;
  }
  return nullptr;
}

bool parse_ptx(const char* text, Module* module) {
  const std::string image = without_comments(text);
  if (!looks_assembled(image)) return false;
  for (std::size_t at = 0; (at = image.find(".entry", at)) != std::string::npos;) {
    at += strlen(".entry");
    add_entry(image, at, module);
  }
  Registry& all = registry();
  std::lock_guard guard(all.lock);
  remember(module);
  all.modules.insert(module);
  all.kernels.insert(module->kernels.begin(), module->kernels.end());
  return true;
}

bool known_module(Module* module) {
  std::lock_guard guard(registry().lock);
  return registry().modules.count(module) != 0;
}

bool known_kernel(Kernel* kernel) {
  std::lock_guard guard(registry().lock);
  return registry().kernels.count(kernel) != 0;
}

void forget(Module* module) {
  Registry& all = registry();
  std::lock_guard guard(all.lock);
  all.modules.erase(module);
  for (Kernel* kernel : module->kernels) all.kernels.erase(kernel);
}

bool pack_arguments(Launch& launch, void** params, void** extra) {
  const Kernel& kernel = *launch.kernel;
  launch.arguments.resize(kernel.argument_bytes);
  if (kernel.argument_bytes == 0) return true;
  if (params) {
    for (std::size_t i = 0; i < kernel.sizes.size(); ++i) {
      memcpy(launch.arguments.data() + kernel.offsets[i], params[i], kernel.sizes[i]);
    }
    return true;
  }
  if (!extra) return false;
  const void* buffer = nullptr;
  std::size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<std::size_t*>(extra[1]);
  }
  if (!buffer) return false;
  memcpy(launch.arguments.data(), buffer, std::min(bytes, launch.arguments.size()));
  return true;
}

}  // namespace fakecuda
