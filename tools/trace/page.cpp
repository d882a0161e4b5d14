#include "tools/trace/page.h"

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "page_html.h"
#include "switchyard/version.h"

namespace switchyard::tools::trace {
namespace {

using nlohmann::json;

constexpr std::string_view kDataMark = "@DATA@";

// Texts by number, in the order in which they came.
template <typename Text>
class Numbered {
 public:
  std::size_t of(const Text& text) {
    const auto [known, fresh] = numbers_.try_emplace(text, numbers_.size());
    if (fresh) texts_.emplace_back(text);
    return known->second;
  }
  json texts() const { return texts_; }

 private:
  std::map<Text, std::size_t> numbers_;
  json texts_ = json::array();
};

class PageData {
 public:
  explicit PageData(const Timeline& timeline) : timeline_(timeline) {}

  json make() {
    json out{{"span", micros(timeline_.to)},
             {"unix_end", timeline_.unix_seconds},
             {"version", kVersion},
             {"job_count", timeline_.jobs.size()}};
    out["gpus"] = json::array();
    for (std::size_t gpu = 0; gpu < timeline_.gpus.size(); ++gpu)
      out["gpus"].push_back(of_gpu(gpu));
    out["lanes"] = json::array();
    for (const Lane& lane : timeline_.lanes) out["lanes"].push_back(of_lane(lane));
    out["arrows"] = json::array();
    for (const Arrow& arrow : timeline_.arrows) out["arrows"].push_back(of_arrow(arrow));
    out["texts"] = texts_.texts();
    out["names"] = names_.texts();
    return out;
  }

 private:
  // Of a moment, not of a span: so spans that follow each other still do when they are rounded.
  std::int64_t micros(std::int64_t at) const { return (at - timeline_.from + 500) / 1000; }

  json of_gpu(std::size_t number) {
    const Gpu& gpu = timeline_.gpus[number];
    json users = json::array();
    for (const Users& each : timeline_.users[number]) {
      json row{micros(each.from), micros(each.to) - micros(each.from),
               names_.of(label_of(timeline_, each))};
      for (const std::size_t lane : each.lanes) row.push_back(lane);
      users.push_back(std::move(row));
    }
    return {{"index", gpu.index},
            {"name", gpu.name},
            {"memory_total", gpu.memory_total_bytes},
            {"users", std::move(users)}};
  }

  json of_lane(const Lane& lane) {
    json spans = json::array(), samples = json::array();
    for (const Span& span : lane.spans) {
      spans.push_back(micros(span.to) - micros(span.from));
      spans.push_back(texts_.of({key_of(span.code.state), label_of(timeline_, span)}));
    }
    for (const Sample& sample : lane.samples) {
      samples.push_back(micros(sample.at));
      samples.push_back(sample.share >= 0 ? sample.share * 100 : -1);
      samples.push_back(sample.memory_bytes);
      samples.push_back(sample.at_work);
      samples.push_back(sample.held_threads);
    }
    const auto job = timeline_.jobs.find(lane.job);
    const Job about = job != timeline_.jobs.end() ? job->second : Job{};
    return {{"gpu", lane.gpu},
            {"job", jobs_.of(lane.job)},
            {"name", about.name},
            {"user", about.user},
            {"id", about.id},
            {"begin", lane.spans.empty() ? 0 : micros(lane.spans.front().from)},
            {"spans", std::move(spans)},
            {"samples", std::move(samples)}};
  }

  json of_arrow(const Arrow& arrow) const {
    const Span& from = timeline_.lanes[arrow.from_lane].spans[arrow.from_span];
    const Span& to = timeline_.lanes[arrow.to_lane].spans[arrow.to_span];
    return {arrow.gpu, micros(from.to), arrow.from_lane, micros(to.from), arrow.to_lane};
  }

  const Timeline& timeline_;
  Numbered<std::pair<std::string, std::string>> texts_;
  Numbered<std::string> names_;
  Numbered<JobKey> jobs_;
};

// No end of a script, no comment and no entity can stand in it.
std::string without_markup(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char letter : text) {
    if (letter == '<') {
      out += "\\u003c";
    } else if (letter == '>') {
      out += "\\u003e";
    } else if (letter == '&') {
      out += "\\u0026";
    } else {
      out += letter;
    }
  }
  return out;
}

}  // namespace

json page_data_of(const Timeline& timeline) { return PageData(timeline).make(); }

std::string page_of(const Timeline& timeline, const std::string& host) {
  json data = page_data_of(timeline);
  data["host"] = host;
  const std::string text = data.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string out(kPageHtml);
  return out.replace(out.find(kDataMark), kDataMark.size(), without_markup(text));
}

}  // namespace switchyard::tools::trace
