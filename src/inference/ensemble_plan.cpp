// SPDX-License-Identifier: Apache-2.0
#include "ensemble_plan.hpp"

#include <fmt/format.h>
#include <formats/text.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::inference {
namespace {

using formats::config_tensor;

/// Numbers the tensors and records which step produces each.
class numbering {
 public:
  explicit numbering(const std::string& file) : file_{file} {}

  [[noreturn]] void refuse(std::string_view field, std::string_view why) const {
    throw formats::input_error{fmt::format("{}: {}: {}", file_, field, why)};
  }
  std::uint32_t make(const std::string& tensor, const std::string& field) {
    const auto [at, is_new] = all_.emplace(tensor, static_cast<std::uint32_t>(all_.size()));
    if (!is_new) {
      refuse(field, fmt::format("tensor {} is made twice: expected another name",
                                formats::quote_short(tensor)));
    }
    return at->second;
  }
  [[nodiscard]] std::uint32_t find(const std::string& tensor, const std::string& field) const {
    const auto at = all_.find(tensor);
    if (at == all_.end()) {
      refuse(field, fmt::format("tensor {} is made by nobody: expected an input, or what a step "
                                "makes",
                                formats::quote_short(tensor)));
    }
    return at->second;
  }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

 private:
  const std::string& file_;
  std::map<std::string, std::uint32_t> all_;
};

void check_tensors(const numbering& tensors, const char* side,
                   const std::vector<config_tensor>& all) {
  if (all.empty()) tensors.refuse(side, "missing: expected those of the ensemble");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string field = fmt::format("{}[{}]", side, i);
    if (!all[i].type) tensors.refuse(field + ".data_type", "missing");
    if (all[i].dims.empty()) tensors.refuse(field + ".dims", "missing");
    if (all[i].reshape) {
      tensors.refuse(field + ".reshape", "is refused of an ensemble: its models reshape");
    }
  }
}

}  // namespace

ensemble_plan::ensemble_plan(const formats::model_config& c, const std::string& file) {
  numbering tensors{file};
  check_tensors(tensors, "input", c.inputs);
  check_tensors(tensors, "output", c.outputs);
  for (const config_tensor& t : c.inputs) tensors.make(t.name, "input");
  const auto place = [](std::size_t i, const char* map) {
    return fmt::format("ensemble_scheduling.step[{}].{}", i, map);
  };
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    step& s = steps_.emplace_back();
    s.model = c.steps[i].model;
    if (c.steps[i].version > 0) s.version = fmt::to_string(c.steps[i].version);
    for (const auto& [name, tensor] : c.steps[i].outputs) {
      s.outputs.push_back({name, tensors.make(tensor, place(i, "output_map"))});
    }
  }
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    for (const auto& [name, tensor] : c.steps[i].inputs) {
      steps_[i].inputs.push_back({name, tensors.find(tensor, place(i, "input_map"))});
    }
    if (steps_[i].inputs.empty()) tensors.refuse(place(i, "input_map"), "missing");
    if (steps_[i].outputs.empty()) tensors.refuse(place(i, "output_map"), "missing");
  }
  for (const config_tensor& t : c.outputs) outputs_.push_back(tensors.find(t.name, "output"));
  tensors_ = tensors.size();
  // A step that can never begin is part of a cycle.
  ensemble_run dry{*this};
  for (std::uint32_t i = 0; i < c.inputs.size(); ++i) dry.set(i, *c.inputs[i].type, {});
  std::size_t begun = 0;
  for (auto ready = dry.begin_ready(); !ready.empty(); ready = dry.begin_ready()) {
    begun += ready.size();
    for (const std::uint32_t i : ready) {
      for (const port& out : steps_[i].outputs) dry.set(out.tensor, {}, {});
    }
  }
  if (begun < steps_.size()) {
    tensors.refuse("ensemble_scheduling", "steps wait for each other: expected no circle");
  }
}

std::vector<std::uint32_t> ensemble_run::begin_ready() {
  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < has_begun_.size(); ++i) {
    const auto is_made = [&](const ensemble_plan::port& p) { return tensors_[p.tensor].is_made; };
    if (has_begun_[i] || !std::ranges::all_of(plan_->steps()[i].inputs, is_made)) continue;
    has_begun_[i] = true;
    ready.push_back(i);
  }
  return ready;
}

}  // namespace cohort::inference
