// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/model_statistics.hpp>

#include <cohort/serve/infer_request.hpp>

#include <fmt/format.h>

namespace cohort::serve {
namespace {

std::string write(const char* name, const time_spent& t) {
  return fmt::format("\"{}\":{{\"count\":{},\"ns\":{}}}", name, t.count, t.total.count());
}

/// Executions of batches of `size`.
std::uint64_t executions_of(std::uint32_t size, const time_spent& rows) {
  return (rows.count + size - 1) / size;
}

std::string write(const named_statistics& m) {
  const model_statistics& s = m.of;
  std::string batches;
  for (const auto& [size, rows] : s.rows) {
    const std::uint64_t executed = executions_of(size, rows);
    const time_spent ran{executed, rows.total / rows.count * executed};
    batches += fmt::format("{}{{\"batch_size\":{},{},{},{}}}", batches.empty() ? "" : ",", size,
                           write("compute_input", {ran.count, {}}), write("compute_infer", ran),
                           write("compute_output", {ran.count, {}}));
  }
  const auto last =
      std::chrono::duration_cast<std::chrono::milliseconds>(s.last_inference.time_since_epoch());
  return fmt::format(
      "{{\"name\":{},\"version\":{},\"last_inference\":{},\"inference_count\":{},"
      "\"execution_count\":{},\"inference_stats\":{{{},{},{},{},{},{},{},{}}},\"batch_stats\":[{}]"
      "}}",
      json_string(m.name), json_string(m.version), last.count(), s.inferences(), s.executions(),
      write("success", s.success), write("fail", s.fail), write("queue", s.queue),
      write("compute_input", s.compute_input), write("compute_infer", s.compute_infer),
      write("compute_output", s.compute_output), write("cache_hit", s.cache_hit),
      write("cache_miss", s.cache_miss), batches);
}

}  // namespace

std::uint64_t model_statistics::inferences() const {
  std::uint64_t n = 0;
  for (const auto& [size, of] : rows) n += of.count;
  return n;
}
std::uint64_t model_statistics::executions() const {
  std::uint64_t n = 0;
  for (const auto& [size, of] : rows) n += executions_of(size, of);
  return n;
}

std::string write_statistics(std::span<const named_statistics> models) {
  std::string list;
  for (const named_statistics& m : models) {
    if (!list.empty()) list += ',';
    list += write(m);
  }
  return "{\"model_stats\":[" + list + "]}";
}

}  // namespace cohort::serve
