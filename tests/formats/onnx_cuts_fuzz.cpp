// SPDX-License-Identifier: Apache-2.0
// Any model that can be read can be cut at all its places: into models that can be read, each of
// which takes what the one before it gives.
#include <formats/onnx_cuts.hpp>
#include <formats/onnx_graph.hpp>
#include <formats/text.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <unordered_set>
#include <vector>

namespace {

using namespace cohort::formats;

/// A graph of which each node is three bytes: its operation and two of the names before it.
onnx_model graph_of(const std::uint8_t* data, std::size_t size) {
  constexpr const char* ops[]{"Add", "MatMul", "If", "RandomNormalLike"};
  onnx_model m{.inputs = {{.name = "x", .element = 1}, {.name = "y", .element = 1}},
               .opsets = {{.domain = "", .version = 17}}};
  m.constants = {{.name = "w", .dims = {0}}, {.name = "v", .dims = {0}}};
  std::vector<std::string> names{"x", "y", "w", "v"};
  for (std::size_t i = 0; i + 2 < size && i < 3000; i += 3) {
    onnx_node& n = m.nodes.emplace_back(onnx_node{.op = ops[data[i] % 4U],
                                                  .inputs = {names[data[i + 1] % names.size()]},
                                                  .outputs = {std::to_string(i)}});
    n.inputs.push_back(names[names.size() - 1 - data[i + 2] % names.size()]);
    names.push_back(n.outputs.front());
    if (data[i] >= 240U) m.outputs.push_back({.name = names[data[i + 1] % names.size()]});
  }
  m.outputs.push_back({.name = names.back()});
  return m;
}

}  // namespace

// The first byte says whether the rest is a file, or makes a graph.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  onnx_model m;
  if (data[0] % 4U != 0) {
    m = graph_of(data + 1, size - 1);
  } else {
    try {
      m = parse_onnx("fuzz.onnx", {reinterpret_cast<const char*>(data + 1), size - 1},
                     {.bytes = 1U << 20U, .nodes = 1000});
    } catch (const input_error&) {
      return 0;
    }
  }
  std::vector<onnx_cut> cuts = find_cuts(m, 3);
  std::size_t last = 0;
  for (const onnx_cut& c : cuts) {
    if (c.node <= last || c.node >= m.nodes.size()) std::abort();
    if (c.tensors.empty() || c.tensors.size() > 3) std::abort();
    last = c.node;
  }
  if (cuts.size() > 8) cuts.resize(8);
  std::unordered_set<std::string> crossing;
  for (const onnx_cut& c : cuts) crossing.insert(c.tensors.begin(), c.tensors.end());
  m.values.clear();
  for (const std::string& name : crossing) {
    m.values.push_back({.name = name, .element = 1, .shape = {{{.value = -1, .name = "n"}}}});
  }
  const std::vector<onnx_model> stages = cut(m, cuts);
  if (stages.size() != cuts.size() + 1) std::abort();
  for (const onnx_model& s : stages) {
    const onnx_model again = parse_onnx("stage.onnx", to_bytes(s));  // Must not be refused.
    if (again.nodes.size() != s.nodes.size()) std::abort();
  }
  for (std::size_t k = 0; k < cuts.size(); ++k) {
    if (stages[k].outputs.size() != cuts[k].tensors.size()) std::abort();
    if (stages[k + 1].inputs.size() < cuts[k].tensors.size()) std::abort();
  }
  if (stages.back().outputs.size() != m.outputs.size()) std::abort();
  return 0;
}
