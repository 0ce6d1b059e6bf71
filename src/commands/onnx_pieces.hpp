// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the smallest possible stages of an ONNX model, and runs some of them together.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/onnx/library.hpp>
#include <cohort/runtime/onnx/session.hpp>
#include <cohort/runtime/onnx/staged.hpp>
#include <cohort/runtime/tensor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <formats/onnx_cuts.hpp>
#include <formats/onnx_graph.hpp>
#include <formats/text.hpp>

namespace cohort::commands {

/// How to find pieces.
struct piece_options {
  std::string name{};            ///< The model's.
  std::uint32_t max_size = 512;  ///< Largest size, as for a session.
  std::size_t most_tensors = 3;  ///< Maximum that cross a cut; at least 1.
  std::size_t most_pieces = 64;  ///< More are joined; at least 1.
  bool splits_fusions = false;   ///< Also cuts where results may be rounded differently.
};

/// A model and its possible cuts: at each a row per request crosses.
class onnx_pieces {
 public:
  using session = runtime::onnx::session;
  using sessions = std::vector<std::shared_ptr<const session>>;

  /// Finds the cuts and, by running the model on zeros, the tensors that cross them.
  /// @throws config_error If the model cannot be loaded or run.
  onnx_pieces(formats::onnx_model m, std::shared_ptr<const runtime::onnx::library> with,
              piece_options o)
      : library_{std::move(with)}, options_{std::move(o)}, model_{std::move(m)} {
    whole_ = load(model_);
    std::vector<formats::onnx_cut> all = formats::find_cuts(model_, options_.most_tensors);
    places_ = all.size();
    const bool has_clean =
        std::ranges::any_of(all, [](const formats::onnx_cut& c) { return !c.splits_fusion; });
    if (has_clean && !options_.splits_fusions) {
      std::erase_if(all, [](const formats::onnx_cut& c) { return c.splits_fusion; });
    }
    describe(all);
    std::erase_if(all, [&](const formats::onnx_cut& c) {
      return std::ranges::any_of(c.tensors,
                                 [&](const std::string& name) { return !tensors_.contains(name); });
    });
    thin(all);
    declare();
  }

  [[nodiscard]] const formats::onnx_model& model() const noexcept { return model_; }
  [[nodiscard]] const std::shared_ptr<const session>& whole() const noexcept { return whole_; }
  /// Number of places that few enough tensors cross, whatever their kind.
  [[nodiscard]] std::size_t places() const noexcept { return places_; }
  /// Between the pieces; may be empty.
  [[nodiscard]] const std::vector<formats::onnx_cut>& cuts() const noexcept { return cuts_; }
  /// Bytes of a row that crosses a cut, at the largest size.
  [[nodiscard]] std::size_t bytes(const formats::onnx_cut& c) const {
    std::vector<runtime::tensor_info> row;
    for (const std::string& name : c.tensors) row.push_back(tensors_.at(name));
    return runtime::row_layout{row, whole_->interface().max_size}.bytes();
  }

  /// Loads stages as readers of their files will.
  /// @throws config_error If a stage cannot be loaded, or is read differently from the model.
  [[nodiscard]] sessions load_stages(std::span<const formats::onnx_model> stages) const {
    sessions loaded;
    for (const formats::onnx_model& s : stages) {
      loaded.push_back(load(s));
      if (loaded.back()->has_batch() == whole_->has_batch()) continue;
      throw config_error{fmt::format(
          "model '{}': stage {} by itself is read {} the batch as dimension 0, and the whole model "
          "is not: expected a model whose inputs say which it is",
          options_.name, loaded.size(), whole_->has_batch() ? "without" : "with")};
    }
    return loaded;
  }

 private:
  [[nodiscard]] std::shared_ptr<const session> load(const formats::onnx_model& m) const {
    const std::string bytes = formats::to_bytes(m);
    return std::make_shared<session>(library_, std::as_bytes(std::span{bytes}), how());
  }
  [[nodiscard]] runtime::onnx::session_options how() const {
    return {.name = options_.name, .max_size = options_.max_size};
  }

  /// Finds the tensors that cross, by making them outputs of a copy of the model.
  void describe(const std::vector<formats::onnx_cut>& cuts) {
    for (const runtime::tensor_info& t : whole_->interface().inputs) tensors_[t.name] = t;
    formats::onnx_model copy = model_;
    copy.outputs.clear();
    std::map<std::string, bool> asked;
    for (const formats::onnx_cut& c : cuts) {
      for (const std::string& name : c.tensors) {
        if (tensors_.contains(name) || !asked.emplace(name, true).second) continue;
        copy.outputs.push_back({.name = name});
      }
    }
    if (copy.outputs.empty()) return;
    auto options = how();
    options.has_batch = whole_->has_batch();
    const std::string bytes = formats::to_bytes(copy);
    for (auto& t :
         runtime::onnx::describe_outputs(library_, std::as_bytes(std::span{bytes}), options)) {
      if (t) tensors_[t->name] = *t;
    }
  }

  /// Reduces the cuts evenly to the maximum number.
  void thin(std::vector<formats::onnx_cut>& all) {
    const std::size_t most = options_.most_pieces - 1;
    if (all.size() <= most) {
      cuts_ = std::move(all);
      return;
    }
    for (std::size_t k = 0; k < most; ++k) {
      cuts_.push_back(all[(2 * k + 1) * all.size() / (2 * most)]);
    }
  }

  /// Declares the crossing tensors, with the inputs' names for batch and size.
  void declare() {
    std::string batch = "batch";
    std::string size = "length";
    const bool has_batch = whole_->has_batch();
    for (const formats::onnx_value& v : model_.inputs) {
      if (!v.shape) continue;
      for (std::size_t i = 0; i < v.shape->size(); ++i) {
        const formats::onnx_dimension& d = (*v.shape)[i];
        if (d.value == -1 && !d.name.empty()) (has_batch && i == 0 ? batch : size) = d.name;
      }
    }
    std::map<std::string, bool> given;
    std::vector<formats::onnx_value> declared;
    for (const formats::onnx_cut& c : cuts_) {
      for (const std::string& name : c.tensors) {
        if (!given.emplace(name, true).second) continue;
        const runtime::tensor_info& t = tensors_.at(name);
        formats::onnx_value& v = declared.emplace_back(formats::onnx_value{
            .name = name, .element = formats::onnx_element(t.type), .shape = {}});
        v.shape.emplace();
        if (has_batch) v.shape->push_back({.value = -1, .name = batch});
        for (const std::int64_t d : t.shape) {
          v.shape->push_back(d == runtime::size_dimension
                                 ? formats::onnx_dimension{.value = -1, .name = size}
                                 : formats::onnx_dimension{.value = d});
        }
      }
    }
    std::erase_if(model_.values,
                  [&](const formats::onnx_value& v) { return given.contains(v.name); });
    model_.values.insert(model_.values.end(), declared.begin(), declared.end());
  }

  std::shared_ptr<const runtime::onnx::library> library_;
  piece_options options_;
  formats::onnx_model model_;
  std::shared_ptr<const session> whole_;
  std::size_t places_ = 0;
  std::vector<formats::onnx_cut> cuts_;
  std::map<std::string, runtime::tensor_info> tensors_;  // Those possible in a row.
};

/// Dense tensors.
using dense_tensors = std::vector<std::vector<std::byte>>;

/// Runs stages in sequence on dense inputs. @returns The outputs of the last.
/// @throws device_error If one fails.
[[nodiscard]] inline dense_tensors run_stages(const onnx_pieces::sessions& stages,
                                              dense_tensors tensors, std::uint32_t rows,
                                              std::uint32_t size) {
  for (const auto& s : stages) {
    dense_tensors outputs;
    for (const runtime::tensor_info& t : s->interface().outputs) {
      outputs.emplace_back(t.bytes(size) * rows);
    }
    std::vector<const std::byte*> in;
    std::vector<std::byte*> out;
    for (const auto& t : tensors) in.push_back(t.data());
    for (auto& t : outputs) out.push_back(t.data());
    s->run(in, out, rows, s->interface().max_size == 1 ? 1 : size);
    tensors = std::move(outputs);
  }
  return tensors;
}

/// How far results are from the expected ones: the largest difference, relative to the largest
/// absolute value of its tensor. 0: bitwise equal. Infinite: values other than FP32 and FP64
/// differ, or some are not numbers.
[[nodiscard]] inline double difference(const std::vector<runtime::tensor_info>& of,
                                       const dense_tensors& expected, const dense_tensors& got) {
  const auto apart = [](auto zero, const std::vector<std::byte>& a,
                        const std::vector<std::byte>& b) {
    double most = 0;
    double largest = 0;
    for (std::size_t at = 0; at < a.size(); at += sizeof(zero)) {
      auto x = zero;
      auto y = zero;
      std::memcpy(&x, a.data() + at, sizeof(x));
      std::memcpy(&y, b.data() + at, sizeof(y));
      const double gap = std::abs(static_cast<double>(x) - static_cast<double>(y));
      if (std::isnan(gap)) return static_cast<double>(INFINITY);
      most = std::max(most, gap);
      largest = std::max(largest, std::abs(static_cast<double>(x)));
    }
    // Zeros with different signs are not bitwise equal.
    return std::max(most / std::max(largest, 1e-30), std::numeric_limits<double>::min());
  };
  double most = 0;
  for (std::size_t i = 0; i < of.size(); ++i) {
    if (expected[i] == got[i]) continue;
    const auto type = of[i].type;
    most = std::max(most, type == runtime::data_type::f32   ? apart(0.0F, expected[i], got[i])
                          : type == runtime::data_type::f64 ? apart(0.0, expected[i], got[i])
                                                            : static_cast<double>(INFINITY));
  }
  return most;
}

}  // namespace cohort::commands
