// SPDX-License-Identifier: Apache-2.0
#include "shapes.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

namespace cohort::runtime::onnx::detail {
namespace {

using shapes = std::vector<std::vector<std::int64_t>>;

/// The subject of an error: "input 'x', dimension 1".
std::string place(std::string_view side, const declared_tensor& t, std::size_t dimension) {
  return fmt::format("{} '{}', dimension {}", side, t.name, dimension);
}

void check_values(std::string_view side, const std::vector<declared_tensor>& tensors) {
  for (const declared_tensor& t : tensors) {
    for (std::size_t i = 0; i < t.shape.size(); ++i) {
      const std::int64_t value = t.shape[i].value;
      if (value == 0 || value < -1) {
        throw config_error{fmt::format("{} is {}: expected at least 1", place(side, t, i), value)};
      }
    }
  }
}

bool is_dynamic(const declared_tensor& t, std::size_t i) {
  return i < t.shape.size() && t.shape[i].value == -1;
}

/// Whether a dynamic dimension is named as the size.
bool is_named(const dimension& d, const std::optional<std::string>& size) {
  return size && !size->empty() && d.name == *size;
}

/// Why dimension 0 is not the batch; nothing if it may be.
std::optional<std::string> why_no_batch(const std::vector<declared_tensor>& inputs,
                                        const std::vector<declared_tensor>& outputs) {
  std::string_view name;
  for (const declared_tensor& t : inputs) {
    if (!is_dynamic(t, 0)) return place("input", t, 0) + " is not dynamic";
    const std::string& own = t.shape[0].name;
    if (!own.empty() && !name.empty() && own != name) {
      return fmt::format("{} is called '{}', that of other inputs '{}'", place("input", t, 0), own,
                         name);
    }
    if (name.empty()) name = own;
  }
  for (const declared_tensor& t : inputs) {
    for (std::size_t i = 1; i < t.shape.size(); ++i) {
      if (!name.empty() && is_dynamic(t, i) && t.shape[i].name == name) {
        return fmt::format("{} is called '{}', as is dimension 0", place("input", t, i), name);
      }
    }
  }
  for (const declared_tensor& t : outputs) {
    if (!t.shape.empty() && !is_dynamic(t, 0)) return place("output", t, 0) + " is not dynamic";
  }
  return std::nullopt;
}

/// The name of the size, which may be empty; nothing if no input has a size.
/// @param first 1 if there is a batch; else 0, with the reason in `no_batch`.
std::optional<std::string> size_name(const std::vector<declared_tensor>& inputs, std::size_t first,
                                     const std::string& no_batch) {
  std::optional<std::string> name;
  for (const declared_tensor& t : inputs) {
    for (std::size_t i = first; i < t.shape.size(); ++i) {
      if (!is_dynamic(t, i)) continue;
      const std::string& own = t.shape[i].name;
      if (!name) {
        name = own;
      } else if (own.empty() || own != *name) {
        const std::string is = own.empty() ? "has no name" : fmt::format("is called '{}'", own);
        const std::string why = first == 1 ? "" : fmt::format("; no batch, as {}", no_batch);
        throw no_rows_error{
            fmt::format("{} is dynamic and {}: expected one dynamic dimension beside the "
                        "batch's, or one name for all ('{}'){}",
                        place("input", t, i), is, *name, why)};
      }
    }
  }
  return name;
}

/// Whether a row of any size is the beginning of a larger one: the size is no inner dimension.
bool is_prefix_of_larger(const tensor_info& t) {
  const auto size = std::ranges::find(t.shape, size_dimension);
  if (size == t.shape.end()) return true;
  return std::all_of(t.shape.begin(), size, [](std::int64_t d) { return d == 1; }) &&
         std::find(size + 1, t.shape.end(), size_dimension) == t.shape.end();
}

bool names_a_mask(const tensor_info& t) {
  std::string lower;
  for (const char c : t.name) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return lower.find("attention_mask") != std::string::npos;
}

/// Refuses strings, which have no rows: their lengths vary by request.
void refuse_strings(std::string_view side, const std::vector<declared_tensor>& tensors) {
  const auto t = std::ranges::find(tensors, data_type::bytes, &declared_tensor::type);
  if (t == tensors.end()) return;
  throw no_rows_error{
      fmt::format("{} '{}' is of BYTES (strings): expected numbers of 8 to 64 bits or booleans",
                  side, t->name)};
}

std::vector<tensor_info> without_batch(const std::vector<declared_tensor>& tensors,
                                       bool has_batch) {
  std::vector<tensor_info> out;
  for (const declared_tensor& t : tensors) {
    tensor_info& o = out.emplace_back(tensor_info{.name = t.name, .type = t.type, .shape = {}});
    for (std::size_t i = has_batch ? 1 : 0; i < t.shape.size(); ++i) {
      o.shape.push_back(t.shape[i].value == -1 ? size_dimension : t.shape[i].value);
    }
  }
  return out;
}

/// Two runs on zeros with different rows and sizes, where possible.
struct probes {
  struct one {
    std::uint32_t rows = 1;
    std::uint32_t size = 1;
    shapes found{};
  };
  one small, large;

  probes(const probe_run& run, std::span<const tensor_info> inputs, bool has_batch,
         std::uint32_t max_size)
      : small{has_batch ? 2U : 1U}, large{has_batch ? 3U : 1U} {
    large.size = std::min(max_size, 12U);
    small.size = std::max(large.size / 2, 1U);
    for (one* p : {&small, &large}) p->found = run(inputs, has_batch, p->rows, p->size);
  }

  /// Whether dimension 0 of an output is the batch.
  [[nodiscard]] bool has_batch(std::size_t output) const {
    const auto fits = [&](const one& p) {
      return !p.found[output].empty() && p.found[output][0] == p.rows;
    };
    return fits(small) && fits(large);
  }
  /// The dimension of an output, from its values in both runs.
  [[nodiscard]] std::int64_t dimension(const declared_tensor& t, std::size_t output,
                                       std::size_t i) const {
    const std::int64_t a = small.found[output][i];
    const std::int64_t b = large.found[output][i];
    if (a == b && a >= 1) return a;
    if (a == small.size && b == large.size) return size_dimension;
    throw no_rows_error{
        fmt::format("{} was {} for a request of size {} and {} for one of size {}: expected a "
                    "constant of at least 1, or the size",
                    place("output", t, i), a, small.size, b, large.size)};
  }
};

/// Completes undeclared shapes of outputs. @returns Why there is no batch after all, if so.
std::optional<std::string> complete(std::vector<tensor_info>& to,
                                    const std::vector<declared_tensor>& outputs,
                                    const std::optional<std::string>& size, bool has_batch,
                                    const probes& seen) {
  const std::size_t first = has_batch ? 1 : 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const declared_tensor& t = outputs[k];
    if (has_batch && !seen.has_batch(k)) return place("output", t, 0) + " is not the batch";
    const std::size_t rank = seen.small.found[k].size();
    const bool has_rank = !t.shape.empty();
    if (rank != seen.large.found[k].size() || (has_rank && rank != t.shape.size())) {
      throw no_rows_error{
          fmt::format("output '{}' does not always have the same number of dimensions", t.name)};
    }
    to[k].shape.clear();
    for (std::size_t i = first; i < rank; ++i) {
      const bool is_open = !has_rank || is_dynamic(t, i);
      const bool is_size = has_rank && is_open && is_named(t.shape[i], size);
      to[k].shape.push_back(is_size   ? size_dimension
                            : is_open ? seen.dimension(t, k, i)
                                      : t.shape[i].value);
    }
  }
  return std::nullopt;
}

bool leaves_questions(const std::vector<declared_tensor>& outputs,
                      const std::optional<std::string>& size, bool has_batch) {
  return std::ranges::any_of(outputs, [&](const declared_tensor& t) {
    if (t.shape.empty()) return true;
    for (std::size_t i = has_batch ? 1 : 0; i < t.shape.size(); ++i) {
      if (is_dynamic(t, i) && !is_named(t.shape[i], size)) return true;
    }
    return false;
  });
}

}  // namespace
}  // namespace cohort::runtime::onnx::detail

namespace cohort::runtime::onnx {

bool pads(const model_interface& m, padding asked) {
  if (asked == padding::none || !m.has_sizes()) return false;
  if (asked == padding::by_name && std::ranges::none_of(m.inputs, detail::names_a_mask))
    return false;
  for (const auto* side : {&m.inputs, &m.outputs}) {
    for (const tensor_info& t : *side) {
      if (detail::is_prefix_of_larger(t)) continue;
      if (asked == padding::by_name) return false;
      throw config_error{fmt::format(
          "tensor '{}' cannot be padded: expected its one dynamic dimension before all others "
          "that are not 1",
          t.name)};
    }
  }
  return true;
}

namespace detail {

namespace {

described_model describe_rows(const std::vector<declared_tensor>& inputs,
                              const std::vector<declared_tensor>& outputs,
                              const session_options& options, const probe_run& probe) {
  std::optional<std::string> no_batch = why_no_batch(inputs, outputs);
  const auto require = [&] {
    if (!options.has_batch.value_or(false) || !no_batch) return;
    throw config_error{
        fmt::format("{}: expected a batch, dynamic and of one name, as dimension 0 of "
                    "every tensor",
                    *no_batch)};
  };
  require();
  refuse_strings("input", inputs);
  refuse_strings("output", outputs);
  if (!options.has_batch.value_or(true)) no_batch = "there is to be none";

  described_model made;
  std::optional<std::string> size;
  const auto declare = [&] {
    made.has_batch = !no_batch;
    size = size_name(inputs, made.has_batch ? 1 : 0, no_batch.value_or(""));
    made.interface = {.name = options.name,
                      .inputs = without_batch(inputs, made.has_batch),
                      .outputs = without_batch(outputs, made.has_batch),
                      .max_size = size ? options.max_size : 1};
    const row_layout is_allowed{made.interface.inputs, made.interface.max_size};
  };
  const auto complete_outputs = [&]() -> std::optional<std::string> {
    if (!leaves_questions(outputs, size, made.has_batch)) return std::nullopt;
    const probes seen{probe, made.interface.inputs, made.has_batch, made.interface.max_size};
    return complete(made.interface.outputs, outputs, size, made.has_batch, seen);
  };
  declare();
  if (const auto why = complete_outputs()) {
    no_batch = why;
    require();
    declare();  // Dimension 0 of inputs is then the size.
    static_cast<void>(complete_outputs());
  }
  const row_layout is_allowed{made.interface.outputs, made.interface.max_size};
  made.pads = pads(made.interface, options.pads);
  return made;
}

}  // namespace

std::vector<std::vector<std::int64_t>> sample_shapes(const std::vector<declared_tensor>& inputs,
                                                     std::int64_t length) {
  const auto names_rows = [&](const dimension& d) {
    return !d.name.empty() && std::ranges::any_of(inputs, [&](const declared_tensor& t) {
      return is_dynamic(t, 0) && t.shape[0].name == d.name;
    });
  };
  std::vector<std::vector<std::int64_t>> all;
  for (const declared_tensor& t : inputs) {
    std::vector<std::int64_t>& shape = all.emplace_back();
    for (const dimension& d : t.shape) {
      const bool is_first = shape.empty();
      shape.push_back(d.value != -1 ? d.value : is_first || names_rows(d) ? 1 : length);
    }
  }
  return all;
}

described_model describe(const std::vector<declared_tensor>& inputs,
                         const std::vector<declared_tensor>& outputs,
                         const session_options& options, const probe_run& probe) {
  expects(!inputs.empty(), "it has no inputs: expected at least one");
  check_values("input", inputs);
  check_values("output", outputs);
  const auto open = [&](std::string_view why) {
    return described_model{.interface = {.name = options.name,
                                         .inputs = without_batch(inputs, false),
                                         .outputs = without_batch(outputs, false)},
                           .why_open = std::string{why}};
  };
  if (!options.why_open.empty()) return open(options.why_open);
  if (!options.may_be_open) return describe_rows(inputs, outputs, options, probe);
  try {
    return describe_rows(inputs, outputs, options, probe);
  } catch (const no_rows_error& e) {
    const std::string_view why = e.what();
    return open(why.substr(0, why.find(": expected ")));
  }
}

}  // namespace detail
}  // namespace cohort::runtime::onnx
