// SPDX-License-Identifier: Apache-2.0
#include "onnx_loader.hpp"

#include <cohort/core/error.hpp>
#include <cohort/runtime/onnx/session.hpp>

#include <fmt/format.h>
#include <models/identity.hpp>
#include <models/measured_model.hpp>
#include <models/onnx_factory.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "start_cache.hpp"

namespace cohort::inference {
namespace {

namespace onnx = runtime::onnx;

/// The number that a configuration gives for the dimension that is as long as a request's input;
/// nothing if it leaves it open, or there is none.
std::optional<std::uint32_t> fixed_size(const runtime::model_interface& of_model,
                                        const runtime::model_interface& wanted) {
  if (wanted.has_sizes()) return std::nullopt;
  for (std::size_t i = 0; i < of_model.inputs.size(); ++i) {
    const auto& shape = of_model.inputs[i].shape;
    const auto open = std::ranges::find(shape, runtime::size_dimension);
    if (open == shape.end()) continue;
    const auto at = static_cast<std::size_t>(open - shape.begin());
    return static_cast<std::uint32_t>(wanted.inputs[i].shape[at]);
  }
  return std::nullopt;
}

void warm(const loaded_version& v, runtime::host_executor& e) {
  if (v.config.warmups.empty()) return;
  models::measured_model<runtime::host_executor> model{e, *v.factory, v.max_batch, 0};
  runtime::host_executor::stream stream = e.make_stream();
  for (const formats::model_warmup& w : v.config.warmups) {
    for (std::uint32_t k = 0; k < w.count; ++k) {
      (void)model.run(stream, std::clamp(w.batch_size, 1U, v.max_batch));
    }
  }
}

}  // namespace

loaded_version load_version(const formats::repository_model& m, const formats::model_version& v,
                            const std::shared_ptr<const onnx::library>& with,
                            runtime::host_executor& e) {
  if (!m.problem.empty()) throw config_error{m.problem};
  if (!v.problem.empty()) throw config_error{v.problem};
  onnx::session_options how{.name = m.name, .max_size = formats::default_max_length};
  if (m.config) {
    how.max_size = m.config->max_length.value_or(how.max_size);
    if (m.config->max_batch_size) how.has_batch = *m.config->max_batch_size > 0;
    if (m.config->padding == formats::padding_rule::zeros) how.pads = onnx::padding::zeros;
  }
  auto session = std::make_shared<const onnx::session>(with, v.file, how);
  const auto check = [&] {
    return formats::check_model(
        m.config_file, m.config,
        {.file = v.file, .interface = session->interface(), .has_batch = session->has_batch()});
  };
  formats::checked_model checked = check();
  // Rows are to be as the configuration says: of its size, and with the outputs that it names
  // alone.
  const auto fixed = fixed_size(session->interface(), checked.interface);
  if (fixed || checked.interface.outputs.size() < session->interface().outputs.size()) {
    how.max_size = fixed.value_or(how.max_size);
    for (const runtime::tensor_info& t : checked.interface.outputs) how.outputs.push_back(t.name);
    session = std::make_shared<const onnx::session>(with, v.file, how);
    checked = check();
  }
  const std::uint32_t max_size = session->interface().max_size;
  loaded_version out;
  out.factory = std::make_unique<models::onnx_factory>(e, session, checked.interface.has_sizes());
  out.max_batch = out.factory->batches() ? std::max(1U, *checked.config.max_batch_size) : 1;
  out.meta = {.name = m.name,
              .platform = onnx_platform,
              .inputs = std::move(checked.interface.inputs),
              .outputs = std::move(checked.interface.outputs),
              .slo = checked.config.slo.value_or(duration{0}),
              .max_size = max_size,
              .batches = out.factory->batches()};
  out.config = std::move(checked.config);
  out.key = {{"model", m.name},
             {"version", fmt::to_string(v.number)},
             {"file", models::fingerprint_of_file(v.file)},
             {"executor", onnx_platform},
             {"onnxruntime", with->version()},
             {"largest_batch", fmt::to_string(out.max_batch)},
             {"largest_size", fmt::to_string(max_size)},
             {key_machine, runtime::describe_host({})}};
  warm(out, e);
  return out;
}

}  // namespace cohort::inference
