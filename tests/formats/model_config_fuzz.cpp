// SPDX-License-Identifier: Apache-2.0
// Any text is a config that a model without one's own shapes can be checked with and written, or
// one line of complaint.
#include <formats/json_reader.hpp>
#include <formats/model_check.hpp>
#include <formats/model_config.hpp>
#include <formats/model_json.hpp>
#include <formats/text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace {

/// A model with the tensors that the config names: those of the config alone are then in question.
/// Without `max_batch_size` their dims begin with the number of rows, which is -1 of some models.
cohort::formats::model_facts facts_for(const cohort::formats::model_config& c) {
  using namespace cohort;
  const bool names_rows = c.max_batch_size.value_or(0) == 0;
  const auto is_open = [](const formats::config_tensor& t) {
    return !t.dims.empty() && t.dims.front() == runtime::size_dimension;
  };
  formats::model_facts f{.file = "model.onnx",
                         .interface = {},
                         .has_batch = !names_rows || std::ranges::any_of(c.inputs, is_open)};
  const std::size_t rows = names_rows && f.has_batch ? 1 : 0;
  f.interface.name = "m";
  f.is_open = c.name.size() % 2 == 1;
  for (const auto& [from, to] :
       {std::pair{&c.inputs, &f.interface.inputs}, std::pair{&c.outputs, &f.interface.outputs}}) {
    for (const formats::config_tensor& t : *from) {
      const std::size_t dims = (t.reshape ? *t.reshape : t.dims).size();
      to->push_back({.name = t.name,
                     .type = t.type.value_or(runtime::data_type::f32),
                     .shape = std::vector<std::int64_t>(dims - std::min(dims, rows),
                                                        runtime::size_dimension)});
    }
  }
  if (f.interface.inputs.empty()) f.interface.inputs.push_back({.name = "x", .shape = {4}});
  return f;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const formats::model_config c = formats::parse_model_config("config.pbtxt", text);
    if (c.max_batch_size && *c.max_batch_size > formats::most_batch) std::abort();
    if (c.versions.latest == 0 || ('/' + c.file).find("/.") != std::string::npos) std::abort();
    (void)formats::parse_json("config.json", formats::to_json(c));
    const formats::model_facts facts = facts_for(c);
    const formats::checked_model m = formats::check_model("config.pbtxt", c, facts);
    if (!m.config.max_batch_size || m.config.inputs.size() != m.interface.inputs.size()) {
      std::abort();
    }
    if (m.interface.max_size == 0 || m.most_rows == 0) std::abort();
    if (m.batches ? !facts.has_batch : *m.config.max_batch_size > 0) std::abort();
    const bool shares = *m.config.max_batch_size > 0 && m.config.batching;
    if (m.runs_alone != (facts.is_open && !shares)) std::abort();
    (void)formats::parse_json("config.json", formats::to_json(m.config));
  } catch (const formats::input_error& e) {
    const std::string_view what = e.what();
    if (what.find('\n') != std::string_view::npos || what.size() > 2000) std::abort();
  }
  return 0;
}
