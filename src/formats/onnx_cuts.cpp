// SPDX-License-Identifier: Apache-2.0
#include "onnx_cuts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "text.hpp"

namespace cohort::formats {
namespace {

constexpr std::size_t none = static_cast<std::size_t>(-1);

/// Nodes that are not deterministic, or contain graphs that may not be.
bool may_differ(const onnx_node& n) {
  constexpr std::array<std::string_view, 10> ops{
      "Bernoulli",     "If",           "Loop",
      "Multinomial",   "RandomNormal", "RandomNormalLike",
      "RandomUniform", "Scan",         "RandomUniformLike",
      "SequenceMap"};
  return !n.domain.empty() || !n.captured.empty() || std::ranges::find(ops, n.op) != ops.end();
}

/// Nodes that runtimes do not fuse with their inputs: products, and all that are not known to be
/// cheap.
bool starts_anew(const onnx_node& n) {
  constexpr std::array<std::string_view, 13> ops{
      "Attention", "Conv", "ConvInteger", "ConvTranspose", "DeformConv",  "Einsum",       "GRU",
      "Gemm",      "LSTM", "MatMul",      "MatMulInteger", "QLinearConv", "QLinearMatMul"};
  return std::ranges::find(ops, n.op) != ops.end();
}

template <class F>
void each_read(const onnx_node& n, F f) {
  for (const auto* names : {&n.inputs, &n.captured}) {
    for (const std::string& name : *names) {
      if (!name.empty()) f(name);
    }
  }
}

/// The producer and consumers of each name, as indices.
struct flow {
  struct tensor {
    const std::string* name;
    std::size_t giver;  // Node; `none`: an input.
    std::size_t last;   // Last node to read it, or the number of nodes: an output.
    bool is_read = false;
  };

  explicit flow(const onnx_model& m) : is_constant(m.nodes.size()) {
    for (const onnx_tensor& t : m.constants) constants.insert(t.name);
    // An input with a default is a constant; sparse constants are unknown names that are not
    // inputs.
    for (const onnx_value& v : m.inputs) {
      if (!constants.contains(v.name)) give(v.name, none);
    }
    for (std::size_t i = 0; i < m.nodes.size(); ++i) {
      const onnx_node& n = m.nodes[i];
      bool varies = may_differ(n);
      each_read(n, [&](const std::string& name) { varies |= numbers.contains(name); });
      is_constant[i] = !varies;
      if (!varies) continue;
      each_read(n, [&](const std::string& name) { read(name, i); });
      for (const std::string& name : n.outputs) {
        if (!name.empty()) give(name, i);
      }
    }
    for (const onnx_value& v : m.outputs) read(v.name, m.nodes.size());
  }

  std::vector<bool> is_constant;  // By node.
  std::unordered_set<std::string_view> constants;
  std::unordered_map<std::string_view, std::size_t> numbers;  // Of names that are not constants.
  std::vector<tensor> tensors;

 private:
  void give(const std::string& name, std::size_t by) {
    if (numbers.emplace(name, tensors.size()).second) tensors.push_back({&name, by, 0, false});
  }
  void read(const std::string& name, std::size_t by) {
    const auto at = numbers.find(name);
    if (at == numbers.end()) return;
    tensors[at->second].last = by;
    tensors[at->second].is_read = true;
  }
};

/// Makes a stage's model from its own nodes.
class stage_maker {
 public:
  explicit stage_maker(const onnx_model& m) : m_{&m}, flow_{m} {
    for (const auto* from : {&m.outputs, &m.inputs, &m.values}) {
      for (const onnx_value& v : *from) declared_[v.name] = &v;
    }
    for (std::size_t i = 0; i < m.nodes.size(); ++i) {
      for (const std::string& name : m.nodes[i].outputs) {
        givers_[name] = i;
      }
    }
  }

  /// @param in, out Names; null: the model's.
  onnx_model make(std::size_t from, std::size_t to, const std::vector<std::string>* in,
                  const std::vector<std::string>* out) const {
    onnx_model s;
    s.name = m_->name;
    s.opsets = m_->opsets;
    s.ir_version = m_->ir_version;
    s.rest = m_->rest;
    s.graph_rest = m_->graph_rest;
    std::vector<std::string> wanted;
    std::vector<bool> takes(m_->nodes.size());
    for (std::size_t i = from; i < to; ++i) {
      if (flow_.is_constant[i]) continue;
      takes[i] = true;
      each_read(m_->nodes[i], [&](const std::string& name) { wanted.push_back(name); });
    }
    if (out == nullptr) {
      s.outputs = m_->outputs;
      for (const onnx_value& v : m_->outputs) wanted.push_back(v.name);
    } else {
      for (const std::string& name : *out) s.outputs.push_back(declaration(name));
    }
    const std::unordered_set<std::string_view> constants = take_constants(wanted, takes);
    for (std::size_t i = 0; i < takes.size(); ++i) {
      if (takes[i]) s.nodes.push_back(m_->nodes[i]);
    }
    for (const onnx_tensor& t : m_->constants) {
      if (constants.contains(t.name)) s.constants.push_back(t);
    }
    for (const onnx_value& v : m_->values) {  // Known types within, which runtimes use for fusion.
      const auto giver = givers_.find(v.name);
      const bool leaves = out != nullptr && std::ranges::find(*out, v.name) != out->end();
      if (giver != givers_.end() && takes[giver->second] && !leaves) s.values.push_back(v);
    }
    if (in == nullptr) {
      for (const onnx_value& v : m_->inputs) {
        if (!flow_.constants.contains(v.name)) s.inputs.push_back(v);
      }
    } else {
      for (const std::string& name : *in) s.inputs.push_back(declaration(name));
    }
    for (const onnx_value& v : m_->inputs) {  // Constants that may be replaced.
      if (constants.contains(v.name)) s.inputs.push_back(v);
    }
    return s;
  }

 private:
  onnx_value declaration(const std::string& name) const {
    const auto at = declared_.find(name);
    if (at == declared_.end() || at->second->element == 0 || !at->second->shape) {
      throw input_error{fmt::format(
          "tensor {}: crosses a cut, and its type and shape are not declared", quote_short(name))};
    }
    return *at->second;
  }

  /// Follows wanted names back to constants. @param takes Receives the nodes on the way.
  std::unordered_set<std::string_view> take_constants(std::vector<std::string>& wanted,
                                                      std::vector<bool>& takes) const {
    std::unordered_set<std::string_view> constants;
    while (!wanted.empty()) {
      const std::string name = std::move(wanted.back());
      wanted.pop_back();
      if (const auto c = flow_.constants.find(name); c != flow_.constants.end()) {
        constants.insert(*c);
        continue;
      }
      const auto giver = givers_.find(name);
      if (giver == givers_.end() || !flow_.is_constant[giver->second] || takes[giver->second]) {
        continue;
      }
      takes[giver->second] = true;
      each_read(m_->nodes[giver->second], [&](const std::string& read) { wanted.push_back(read); });
    }
    return constants;
  }

  const onnx_model* m_;
  flow flow_;
  std::unordered_map<std::string_view, const onnx_value*> declared_;
  std::unordered_map<std::string_view, std::size_t> givers_;
};

}  // namespace

std::vector<onnx_cut> find_cuts(const onnx_model& m, std::size_t most_tensors) {
  const flow f{m};
  std::vector<std::vector<std::size_t>> given(m.nodes.size());
  std::vector<std::vector<std::size_t>> ended(m.nodes.size() + 1);
  std::set<std::size_t> alive;  // In order of their production.
  for (std::size_t t = 0; t < f.tensors.size(); ++t) {
    if (!f.tensors[t].is_read) continue;
    ended[f.tensors[t].last].push_back(t);
    if (f.tensors[t].giver == none) {
      alive.insert(t);
    } else {
      given[f.tensors[t].giver].push_back(t);
    }
  }
  std::vector<onnx_cut> cuts;
  bool any_before = false;
  for (std::size_t i = 0; i < m.nodes.size(); ++i) {
    if (f.is_constant[i]) continue;
    if (any_before && !alive.empty() && alive.size() <= most_tensors) {
      onnx_cut& c =
          cuts.emplace_back(onnx_cut{.node = i, .splits_fusion = !starts_anew(m.nodes[i])});
      for (const std::size_t t : alive) c.tensors.push_back(*f.tensors[t].name);
    }
    any_before = true;
    for (const std::size_t t : given[i]) alive.insert(t);
    for (const std::size_t t : ended[i]) alive.erase(t);
  }
  return cuts;
}

std::vector<onnx_model> cut(const onnx_model& m, std::span<const onnx_cut> at) {
  const stage_maker maker{m};
  std::vector<onnx_model> stages;
  for (std::size_t k = 0; k <= at.size(); ++k) {
    stages.push_back(maker.make(
        k == 0 ? 0 : at[k - 1].node, k == at.size() ? m.nodes.size() : at[k].node,
        k == 0 ? nullptr : &at[k - 1].tensors, k == at.size() ? nullptr : &at[k].tensors));
  }
  return stages;
}

}  // namespace cohort::formats
