// SPDX-License-Identifier: Apache-2.0
#include "model_check.hpp"

#include "naming.hpp"
#include "text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::formats {
namespace {

using runtime::size_dimension;
using runtime::tensor_info;

std::string shape_text(const std::vector<std::int64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

class checker {
 public:
  checker(const std::string& file, const std::optional<model_config>& config,
          const model_facts& facts)
      : file_{file}, facts_{facts}, has_config_{config.has_value()} {
    if (config) out_.config = *config;
    out_.interface = facts.interface;
  }

  checked_model check() {
    model_config& c = out_.config;
    if (c.name.empty()) c.name = facts_.interface.name;
    out_.interface.name = c.name;
    choose_batch();
    complete("input", c.inputs, out_.interface.inputs, true);
    complete("output", c.outputs, out_.interface.outputs, false);
    if (facts_.is_open) {
      out_.interface.max_size = 1;
    } else {
      choose_length();
    }
    naming(facts_.file, [&] {
      if (facts_.is_open) return;
      static_cast<void>(runtime::row_layout{out_.interface.inputs, out_.interface.max_size});
      static_cast<void>(runtime::row_layout{out_.interface.outputs, out_.interface.max_size});
    });
    out_.client_inputs = shapes_of(c.inputs, out_.interface.inputs);
    out_.client_outputs = shapes_of(c.outputs, out_.interface.outputs);
    check_batching();
    for (std::size_t i = 0; i < c.warmups.size(); ++i) check_warmup(i);
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string at(std::string_view field) const {
    return fmt::format("{}: {}", file_, field);
  }
  [[nodiscard]] std::string as_model_has(std::string_view what) const {
    return fmt::format("{}, as {} has it", what, facts_.file);
  }

  void choose_batch() {
    model_config& c = out_.config;
    const std::uint32_t limit = facts_.batch_limit == 0 ? most_batch : facts_.batch_limit;
    if (!c.max_batch_size) {
      const bool batches = facts_.has_batch && !has_config_;
      c.max_batch_size = batches ? std::min(default_max_batch, limit) : 0;
    }
    const std::uint32_t most = *c.max_batch_size;
    if (most > 0 && !facts_.has_batch) {
      fail(at("max_batch_size"), fmt::format("{}", most),
           fmt::format("0, since {} has no batch dimension", facts_.file));
    }
    if (most > limit) {
      fail(at("max_batch_size"), fmt::format("{}", most),
           fmt::format("at most {}, the rows that {} takes", limit, facts_.file));
    }
    out_.batches = facts_.has_batch;
    out_.runs_alone = facts_.is_open && (most == 0 || !c.batching || c.sequences);
    names_rows_ = out_.batches && most == 0;
    if (out_.batches) out_.most_rows = most > 0 ? most : limit;
    if (names_rows_ && c.max_length && !out_.interface.has_sizes()) {
      out_.most_rows = std::min(*c.max_length, limit);
    }
  }

  /// Compares the config's tensors with the model's, and completes them.
  void complete(std::string_view field, std::vector<config_tensor>& said,
                std::vector<tensor_info>& tensors, bool all) {
    if (said.empty()) {
      for (const tensor_info& t : tensors) {
        said.push_back({.name = t.name, .type = t.type, .dims = with_rows(t.shape)});
      }
      return;
    }
    std::vector<bool> named(tensors.size());
    for (std::size_t i = 0; i < said.size(); ++i) {
      const std::string place = fmt::format("{}[{}].", field, i);
      const auto found = std::ranges::find(tensors, said[i].name, &tensor_info::name);
      if (found == tensors.end()) {
        fail(at(place + "name"), quote_short(said[i].name), as_model_has(names_of(tensors)));
      }
      named[static_cast<std::size_t>(found - tensors.begin())] = true;
      compare(place, said[i], *found, all);
    }
    for (std::size_t i = tensors.size(); i-- > 0;) {
      if (named[i]) continue;
      if (all) {
        throw input_error{fmt::format("{}: missing: expected also {}, an input that {} has",
                                      at(field), quote_short(tensors[i].name), facts_.file)};
      }
      tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  [[nodiscard]] static std::string names_of(const std::vector<tensor_info>& tensors) {
    constexpr std::size_t most = 8;
    std::string out;
    for (std::size_t i = 0; i < std::min(most, tensors.size()); ++i) {
      out += (i == 0 ? "" : " or ") + quote_short(tensors[i].name);
    }
    if (tensors.empty()) return "none";
    return tensors.size() > most ? out + " or another" : out;
  }
  /// A row's shape in the config: with `max_batch_size` 0 it includes the rows.
  [[nodiscard]] std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape) const {
    if (names_rows_) shape.insert(shape.begin(), size_dimension);
    return shape;
  }
  /// For outputs the config may leave a length open that each run has.
  void compare(const std::string& place, config_tensor& said, tensor_info& t, bool is_input) {
    if (!said.type) said.type = t.type;
    if (*said.type != t.type) {
      fail(at(place + "data_type"), runtime::config_name_of(*said.type),
           as_model_has(runtime::config_name_of(t.type)));
    }
    const std::vector<std::int64_t> has = with_rows(t.shape);
    if (said.dims.empty()) said.dims = has;
    const std::vector<std::int64_t>& dims = said.reshape ? *said.reshape : said.dims;
    const bool is_any = facts_.is_open && !is_input && has.empty();  // Its rank is unknown.
    const bool fits = is_any || std::ranges::equal(dims, has, [&](auto mine, auto models) {
                        return models == size_dimension || mine == models ||
                               (!is_input && mine == size_dimension);
                      });
    if (!fits) {
      fail(at(place + (said.reshape ? "reshape.shape" : "dims")), shape_text(dims),
           as_model_has(shape_text(has) +
                        (names_rows_ ? ", whose first is the number of rows, as max_batch_size is 0"
                         : out_.batches ? " without its batch dimension"
                                        : "")));
    }
    if (is_any) t.shape = dims;
    const std::size_t before = names_rows_ ? 1 : 0;
    if (names_rows_ && dims.front() != size_dimension) {
      out_.most_rows = std::min(out_.most_rows, static_cast<std::uint32_t>(dims.front()));
    }
    for (std::size_t d = 0; d < t.shape.size(); ++d) {
      if (t.shape[d] == size_dimension) t.shape[d] = dims[before + d];
    }
    if (!said.reshape || !names_rows_) return;
    // Clients' tensors have no dimension for rows: a request is one row.
    if (dims.front() != 1) {
      fail(at(place + "reshape.shape"), shape_text(dims),
           "1 as its first, the number of rows, as max_batch_size is 0");
    }
    out_.batches = false;
  }

  /// The shape of each tensor, for clients.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> shapes_of(
      const std::vector<config_tensor>& said, const std::vector<tensor_info>& tensors) const {
    std::vector<std::vector<std::int64_t>> all;
    for (const tensor_info& t : tensors) {
      const auto mine = std::ranges::find(said, t.name, &config_tensor::name);
      const bool is_other = mine != said.end() && mine->reshape;
      all.push_back(is_other ? mine->dims : t.shape);
      // If one tensor has no dimension for rows, that of the others is 1.
      if (!is_other && names_rows_ && !out_.batches) all.back().insert(all.back().begin(), 1);
    }
    return all;
  }

  void choose_length() {
    runtime::model_interface& i = out_.interface;
    const std::optional<std::uint32_t>& most = out_.config.max_length;
    if (!i.has_sizes()) {
      if (most && !names_rows_) {
        fail(at("parameters[\"max_length\"]"), fmt::format("{}", *most),
             "none, since no input has a dimension of -1");
      }
      for (const runtime::tensor_info& t : i.outputs) {
        if (!t.has_size()) continue;
        fail(has_config_ ? file_ : facts_.file,
             fmt::format("output {} of {}", quote_short(t.name), shape_text(t.shape)),
             "dims without -1, since no input has a dimension of -1");
      }
      i.max_size = 1;
      return;
    }
    if (most) {
      i.max_size = *most;
    } else if (i.max_size <= 1) {
      i.max_size = default_max_length;
    }
  }

  void check_batching() {
    if (!out_.config.batching) return;
    const std::vector<std::uint32_t>& sizes = out_.config.batching->preferred;
    const std::uint32_t most = *out_.config.max_batch_size;
    if (!sizes.empty() && sizes.back() > most) {
      fail(at("dynamic_batching.preferred_batch_size"), fmt::format("{}", sizes.back()),
           most == 0 ? "none, since max_batch_size is 0"
                     : fmt::format("1 to {}, max_batch_size", most));
    }
    if (most == 0) {
      out_.config.ignored.push_back(at("dynamic_batching is ignored: max_batch_size is 0"));
    }
  }

  void check_warmup(std::size_t index) const {
    const model_warmup& w = out_.config.warmups[index];
    const std::string place = fmt::format("model_warmup[{}].", index);
    const std::uint32_t most = std::max(1U, *out_.config.max_batch_size);
    if (w.batch_size > most) {
      fail(at(place + "batch_size"), fmt::format("{}", w.batch_size),
           fmt::format("1 to {}, as max_batch_size is {}", most, *out_.config.max_batch_size));
    }
    const std::vector<tensor_info>& inputs = out_.interface.inputs;
    std::optional<std::int64_t> size;  // One value per request.
    for (const warmup_input& in : w.inputs) {
      const std::string here = fmt::format("{}inputs[{}].", place, quote_short(in.tensor.name));
      const auto found = std::ranges::find(inputs, in.tensor.name, &tensor_info::name);
      if (found == inputs.end()) {
        fail(at(place + "inputs.key"), quote_short(in.tensor.name), as_model_has(names_of(inputs)));
      }
      if (in.tensor.type != found->type) {
        fail(at(here + "data_type"), runtime::config_name_of(in.tensor.type),
             fmt::format("{}, the input's", runtime::config_name_of(found->type)));
      }
      const std::vector<std::int64_t>& shape =
          out_.client_inputs[static_cast<std::size_t>(found - inputs.begin())];
      const std::size_t before = names_rows_ && out_.batches ? 1 : 0;
      bool fits = in.tensor.shape.size() == shape.size() + before;
      if (fits && before == 1) {
        fits = in.tensor.shape.front() >= 1 && in.tensor.shape.front() <= out_.most_rows;
      }
      for (std::size_t d = 0; fits && d < shape.size(); ++d) {
        const std::int64_t n = in.tensor.shape[before + d];
        if (shape[d] == size_dimension && facts_.is_open) {
          fits = n >= 1;
        } else if (shape[d] == size_dimension) {
          if (!size) size = n;
          fits = n == *size && n <= out_.interface.max_size;
        } else {
          fits = n == shape[d];
        }
      }
      if (!fits) {
        fail(at(here + "dims"), shape_text(in.tensor.shape),
             fmt::format(
                 "{}, the input's{}", shape_text(before == 1 ? with_rows(shape) : shape),
                 found->has_size() && !facts_.is_open
                     ? fmt::format(", with one length from 1 to {} for -1", out_.interface.max_size)
                     : ""));
      }
    }
    if (w.inputs.size() != inputs.size()) {
      throw input_error{
          fmt::format("{}: missing: expected an entry for each of the model's {} inputs",
                      at(place + "inputs"), inputs.size())};
    }
  }

  const std::string& file_;
  const model_facts& facts_;
  bool has_config_;
  bool names_rows_ = false;  // The config's dims begin with the number of rows.
  checked_model out_;
};

}  // namespace

checked_model check_model(const std::string& config_file, const std::optional<model_config>& config,
                          const model_facts& facts) {
  return checker{config_file, config, facts}.check();
}

}  // namespace cohort::formats
