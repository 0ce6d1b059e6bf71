// SPDX-License-Identifier: Apache-2.0
#include "sequence_plan.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace cohort::inference {
namespace {

using formats::sequence_control;
using runtime::data_type;
using runtime::shaped_tensor;
using runtime::tensor_info;

[[noreturn]] void wrong(const std::string& place, const std::string& got,
                        const std::string& expected) {
  throw config_error{fmt::format("{}: got {}, expected {}", place, got, expected)};
}

std::size_t find(const std::vector<tensor_info>& tensors, const std::string& name,
                 const std::string& place) {
  const auto at = std::ranges::find(tensors, name, &tensor_info::name);
  if (at != tensors.end()) return static_cast<std::size_t>(at - tensors.begin());
  std::vector<std::string_view> names;
  for (const tensor_info& t : tensors) names.emplace_back(t.name);
  wrong(place, fmt::format("'{}'", name), fmt::format("one of {}", fmt::join(names, ", ")));
}

std::vector<std::int64_t> closed(std::vector<std::int64_t> shape) {
  std::ranges::replace(shape, runtime::size_dimension, std::int64_t{1});
  return shape;
}

std::size_t elements(const std::vector<std::int64_t>& shape) {
  std::size_t n = 1;
  for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
  return n;
}

shaped_tensor owned(std::vector<std::int64_t> shape, std::vector<std::byte> bytes) {
  const auto values = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {std::move(shape), *values, values};
}

template <class T>
std::vector<std::byte> bytes_of(T x) {
  std::vector<std::byte> out(sizeof(T));
  std::memcpy(out.data(), &x, sizeof(T));
  return out;
}

std::vector<std::byte> value_of(const formats::control_input& c, const serve::sequence_place& at) {
  if (c.what == sequence_control::id) {
    return c.type == data_type::i32 || c.type == data_type::u32
               ? bytes_of(static_cast<std::uint32_t>(at.number))
               : bytes_of(at.number);
  }
  const bool is = c.what == sequence_control::start ? at.starts
                  : c.what == sequence_control::end ? at.ends
                                                    : true;
  const double x = is ? c.yes : c.no;
  if (c.type == data_type::f32) return bytes_of(static_cast<float>(x));
  if (c.type == data_type::i32) return bytes_of(static_cast<std::int32_t>(x));
  return bytes_of(static_cast<std::uint8_t>(x != 0));
}

std::uint64_t largest_id(data_type t) {
  switch (t) {
    case data_type::i32:
      return std::numeric_limits<std::int32_t>::max();
    case data_type::u32:
      return std::numeric_limits<std::uint32_t>::max();
    case data_type::i64:
      return std::numeric_limits<std::int64_t>::max();
    default:
      return std::numeric_limits<std::uint64_t>::max();
  }
}

}  // namespace

sequence_plan::sequence_plan(const formats::sequence_batching& c,
                             const runtime::model_interface& model, bool has_rows,
                             const std::vector<formats::config_tensor>& outputs,
                             const std::string& file)
    : count_{model.inputs.size()} {
  std::vector<bool> is_taken(model.inputs.size(), false);
  std::vector<bool> is_state(model.outputs.size(), false);
  const auto take = [&](std::size_t input, const std::string& place) {
    if (is_taken[input]) {
      wrong(place, fmt::format("'{}'", model.inputs[input].name), "each input once");
    }
    is_taken[input] = true;
  };
  const auto check_type = [&](const tensor_info& has, data_type said, const std::string& place) {
    if (has.type == said) return;
    wrong(place, runtime::config_name_of(said),
          fmt::format("{}, as the model has {}", runtime::config_name_of(has.type), has.name));
  };
  for (std::size_t i = 0; i < c.controls.size(); ++i) {
    const formats::control_input& said = c.controls[i];
    const std::string place = fmt::format("{}: sequence_batching.control_input[{}]", file, i);
    control mine{.input = find(model.inputs, said.name, place + ".name"), .is = said, .shape = {}};
    take(mine.input, place + ".name");
    const tensor_info& has = model.inputs[mine.input];
    check_type(has, said.type, place);
    mine.shape = closed(has.shape);
    if (elements(mine.shape) != 1) {
      wrong(place, fmt::format("[{}]", fmt::join(has.shape, ", ")), "an input of one number");
    }
    if (said.what == sequence_control::id) {
      ids_.takes_text = false;
      ids_.most = std::min(ids_.most, largest_id(said.type));
    }
    controls_.push_back(std::move(mine));
  }
  for (std::size_t i = 0; i < c.states.size(); ++i) {
    const formats::sequence_state& said = c.states[i];
    const std::string place = fmt::format("{}: sequence_batching.state[{}]", file, i);
    state mine{.input = find(model.inputs, said.input, place + ".input_name"),
               .output = find(model.outputs, said.output, place + ".output_name"),
               .first = {}};
    take(mine.input, place + ".input_name");
    const tensor_info& has = model.inputs[mine.input];
    if (said.type) check_type(has, *said.type, place + ".data_type");
    if (model.outputs[mine.output].type != has.type) {
      wrong(place, runtime::config_name_of(model.outputs[mine.output].type),
            fmt::format("an output of {}, as {}", runtime::config_name_of(has.type), has.name));
    }
    is_state[mine.output] = true;
    const std::vector<std::int64_t>& dims = said.first.empty() ? said.dims : said.first;
    std::vector<std::int64_t> first = closed(has.shape);
    if (!dims.empty()) {
      const std::size_t rows = has_rows ? 1 : 0;  // The configuration omits this dimension.
      bool fits = rows + dims.size() == has.shape.size();
      for (std::size_t k = 0; fits && k < dims.size(); ++k) {
        const std::int64_t is = has.shape[rows + k];
        if (dims[k] != runtime::size_dimension) first[rows + k] = dims[k];
        fits = is == runtime::size_dimension || is == first[rows + k];
      }
      if (!fits) {
        wrong(place + (said.first.empty() ? ".dims" : ".initial_state[0].dims"),
              fmt::format("[{}]{}", fmt::join(dims, ", "),
                          has_rows ? " without its batch dimension" : ""),
              fmt::format("[{}], as the model has {}", fmt::join(has.shape, ", "), has.name));
      }
    }
    const std::size_t bytes = elements(first) * runtime::bytes_of(has.type);
    mine.first = owned(std::move(first), std::vector<std::byte>(bytes));
    states_.push_back(std::move(mine));
  }
  clients_ = model;
  clients_.inputs.clear();
  clients_.outputs.clear();
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    if (is_taken[i]) continue;
    inputs_.push_back(i);
    clients_.inputs.push_back(model.inputs[i]);
  }
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    if (is_state[i] && std::ranges::find(outputs, model.outputs[i].name,
                                         &formats::config_tensor::name) == outputs.end()) {
      continue;
    }
    outputs_.push_back(i);
    clients_.outputs.push_back(model.outputs[i]);
  }
  if (clients_.inputs.empty() || clients_.outputs.empty()) {
    throw config_error{fmt::format(
        "{}: sequence_batching: expected an input and an output beside control and state", file)};
  }
}

std::vector<shaped_tensor> sequence_plan::inputs(std::vector<shaped_tensor> in,
                                                 const serve::sequence_place& at,
                                                 const std::vector<shaped_tensor>& before) const {
  std::vector<shaped_tensor> all(count_);
  for (std::size_t i = 0; i < inputs_.size(); ++i) all[inputs_[i]] = std::move(in[i]);
  for (const control& c : controls_) all[c.input] = owned(c.shape, value_of(c.is, at));
  for (std::size_t i = 0; i < states_.size(); ++i) {
    all[states_[i].input] = before.empty() ? states_[i].first : before[i];
  }
  return all;
}

std::vector<shaped_tensor> sequence_plan::outputs(const std::vector<shaped_tensor>& all) const {
  std::vector<shaped_tensor> out;
  for (const std::size_t i : outputs_) out.push_back(all[i]);
  return out;
}

std::vector<shaped_tensor> sequence_plan::states(const std::vector<shaped_tensor>& all) const {
  std::vector<shaped_tensor> out;
  for (const state& s : states_) out.push_back(all[s.output]);
  return out;
}

std::string key_of(const serve::sequence_place& at) {
  return at.text.empty() ? fmt::format("{}", at.number) : fmt::format("'{}'", at.text);
}

}  // namespace cohort::inference
