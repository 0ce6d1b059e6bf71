// SPDX-License-Identifier: Apache-2.0
#include "onnx_traffic.hpp"

#include <cohort/runtime/onnx/library.hpp>
#include <cohort/runtime/onnx/session.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <models/onnx_factory.hpp>
#include "onnx_file.hpp"

namespace cohort::commands {
namespace {

namespace onnx = runtime::onnx;

/// The runtime's types of all node outputs, by making them outputs of a copy of the model.
std::map<std::string, runtime::tensor_info> tensors_of(
    const formats::onnx_model& m, const onnx::session& whole,
    const std::shared_ptr<const onnx::library>& with) {
  std::map<std::string, runtime::tensor_info> all;
  for (const runtime::tensor_info& t : whole.interface().inputs) all[t.name] = t;
  for (const runtime::tensor_info& t : whole.interface().outputs) all[t.name] = t;
  formats::onnx_model copy = m;
  copy.outputs.clear();
  for (const formats::onnx_node& n : m.nodes) {
    for (const std::string& name : n.outputs) {
      if (!name.empty() && !all.contains(name)) copy.outputs.push_back({.name = name});
    }
  }
  if (copy.outputs.empty()) return all;
  const std::string bytes = formats::to_bytes(copy);
  for (auto& t : onnx::describe_outputs(with, std::as_bytes(std::span{bytes}),
                                        {.name = whole.interface().name,
                                         .max_size = whole.interface().max_size,
                                         .has_batch = whole.has_batch()})) {
    if (t) all[t->name] = *t;
  }
  return all;
}

}  // namespace

onnx_traffic count_onnx_traffic(const std::string& file, std::uint32_t max_length) {
  const auto library = onnx::library::open();
  std::optional<onnx_traffic> sum;
  for (const std::filesystem::path& path : models::files_of_onnx(file)) {
    const formats::onnx_model m = formats::parse_onnx(path.string(), read_onnx_file(path.string()));
    const onnx::session whole{library, path, {.name = m.name, .max_size = max_length}};
    onnx_traffic mine{m, tensors_of(m, whole, library), whole.interface().max_size};
    if (sum) {
      sum->add(mine);
    } else {
      sum.emplace(std::move(mine));
    }
  }
  return *sum;
}

}  // namespace cohort::commands
