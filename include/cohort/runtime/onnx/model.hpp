// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model of ONNX Runtime as a staged model of one stage: `onnx_model`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/onnx/session.hpp>
#include <cohort/runtime/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::runtime::onnx {

namespace requirement {
template <class E>
concept launches_host_work =
    requires(E& e, typename E::stream& s, void (*work)()) { e.launch(s, work); };
}  // namespace requirement

/// A session as a model of one stage. Rows lie as `row_layout` says, each tensor as long as the
/// largest size needs; of a slice of size n (0: the largest) the first n of each are computed, and
/// what lies behind them in an output is left as it was. If `pads()`, a row may be shorter than the
/// slice's size if zeros follow its inputs; if not, all rows of a slice must be of the slice's
/// size. Rows that are one tensor and lie densely are read and written where they are; others are
/// moved through work space, made at construction. `enqueue` allocates nothing; the run on the
/// stream's thread allocates as ONNX Runtime does. If the run fails, the stream fails with a
/// `device_error` that has ONNX Runtime's message. If the slice asks for it (`slice::unfit`) and a
/// row of zeros or one computed before still runs, the model instead finds the rows that fail
/// alone, such as those with an id out of range, and computes the others. That takes 2 log2 n runs
/// of parts for one bad row among n, and never more than 4 log2 n; rows undecided by then are
/// `slot_state::unknown`. For this the model keeps a copy of one computed row. Work that was given
/// up (`slice::given_up`) ends before its next operator when `interrupt` is called. Sessions may be
/// shared by models. Thread safety: only `interrupt` may be called from any thread; a model is used
/// on one stream at a time. Models: `staged_model`.
template <executor Executor>
  requires requirement::launches_host_work<Executor>
class onnx_model {
 public:
  /// @param of Not null.
  /// @param batch_max Largest number of rows of a slice; at least 1.
  /// @throws config_error If `batch_max` is 0, or rows of that number have 2^40 bytes or more.
  /// @throws resource_error If the executor has no memory left for the work space.
  onnx_model(Executor& e, std::shared_ptr<const session> of, std::uint32_t batch_max)
      : executor_{&e},
        session_{std::move(of)},
        batch_max_{batch_max},
        in_{e, session_->interface().inputs, session_->interface().max_size, batch_max},
        out_{e, session_->interface().outputs, session_->interface().max_size, batch_max},
        end_{*session_} {}
  onnx_model(const onnx_model&) = delete;  // Work on streams points to it.
  onnx_model& operator=(const onnx_model&) = delete;

  [[nodiscard]] std::string_view name() const noexcept { return session_->interface().name; }
  [[nodiscard]] std::size_t stages() const noexcept { return 1; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t boundary) const noexcept {
    return boundary == 0 ? in_.layout.bytes() : out_.layout.bytes();
  }
  [[nodiscard]] const model_interface& interface() const noexcept { return session_->interface(); }
  /// Whether rows may be shorter than their slice's size, with zeros behind their inputs.
  [[nodiscard]] bool pads() const noexcept { return session_->pads(); }

  /// @throws config_error If the slice has more than `batch_max` rows or is of a larger size than
  /// the model takes; nothing was enqueued then.
  void enqueue(std::size_t /*stage*/, typename Executor::stream& stream, const slice& s) {
    const std::uint32_t max_size = session_->interface().max_size;
    if (s.count > batch_max_) {
      throw config_error{"model '" + std::string{name()} + "': slice: got " +
                         std::to_string(s.count) + " rows, expected 1 to " +
                         std::to_string(batch_max_)};
    }
    if (max_size > 1 && s.size > max_size) {
      throw config_error{"model '" + std::string{name()} + "': slice: got size " +
                         std::to_string(s.size) + ", expected 1 to " + std::to_string(max_size)};
    }
    // Models without sizes ignore them.
    const std::uint32_t size = s.size == 0 || max_size == 1 ? max_size : s.size;
    executor_->launch(stream, [this, s, size] { run(s, size); });
  }
  /// Ends the current run if it was given up. Any thread.
  void interrupt() noexcept { end_.ask(); }

 private:
  /// The tensors of one side, and dense memory for them.
  struct side {
    side(Executor& e, std::span<const tensor_info> of, std::uint32_t max_size,
         std::uint32_t batch_max)
        : tensors{of}, layout{of, max_size}, dense(of.size()) {
      expects(batch_max >= 1, "onnx_model: batch_max must be at least 1");
      // Also a check that the product below is in range.
      const row_layout is_allowed{
          std::vector<tensor_info>{
              {.name = "of a batch", .type = data_type::u8, .shape = {batch_max, bytes_of_row()}}},
          1};
      work = e.allocate(layout.bytes() * batch_max);
      std::size_t at = 0;
      for (std::size_t i = 0; i < of.size(); ++i) {
        places.push_back(at);
        at += (i + 1 < of.size() ? layout.offset(i + 1) - layout.offset(i) : 0) * batch_max;
      }
    }
    [[nodiscard]] std::int64_t bytes_of_row() const {
      return static_cast<std::int64_t>(layout.bytes());
    }
    /// Sets `dense` to the address where each tensor of the rows is to lie densely. @returns
    /// Whether it is so already.
    bool place(std::byte* rows, std::size_t stride, std::uint32_t count, std::uint32_t size) {
      const bool is_dense = tensors.size() == 1 && (count == 1 || stride == tensors[0].bytes(size));
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        dense[i] = is_dense ? rows : work.data() + places[i];
      }
      return is_dense;
    }
    /// Calls `copy(in the row, in the dense tensor, bytes)` for each row and tensor.
    template <class Copy>
    void each(std::byte* rows, std::size_t stride, std::uint32_t count, std::uint32_t size,
              Copy copy) const {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::size_t bytes = tensors[i].bytes(size);
        for (std::uint32_t r = 0; r < count; ++r) {
          copy(rows + r * stride + layout.offset(i), dense[i] + r * bytes, bytes);
        }
      }
    }

    /// Of one row, where each of its tensors is.
    [[nodiscard]] std::vector<std::byte*> tensors_of(std::byte* row) const {
      std::vector<std::byte*> all;
      for (std::size_t i = 0; i < tensors.size(); ++i) all.push_back(row + layout.offset(i));
      return all;
    }
    /// The dense tensors without their first rows.
    [[nodiscard]] std::vector<std::byte*> behind(std::uint32_t rows, std::uint32_t size) const {
      std::vector<std::byte*> all = dense;
      for (std::size_t i = 0; i < tensors.size(); ++i) all[i] += rows * tensors[i].bytes(size);
      return all;
    }

    std::span<const tensor_info> tensors;
    row_layout layout;
    typename Executor::buffer work;
    std::vector<std::size_t> places{};  // Of tensors in `work`.
    std::vector<std::byte*> dense;
  };

  void run(const slice& s, std::uint32_t size) {
    std::byte* const from = s.input + s.first * s.input_stride;
    std::byte* const to = s.output + s.first * s.output_stride;
    if (!in_.place(from, s.input_stride, s.count, size)) {
      in_.each(from, s.input_stride, s.count, size,
               [](const std::byte* row, std::byte* dense, std::size_t bytes) {
                 std::memcpy(dense, row, bytes);
               });
    }
    const bool stays = out_.place(to, s.output_stride, s.count, size);
    given_up_ = s.given_up;
    if (s.is_sample) {
      run_sample(s, size);
    } else if (s.unfit == nullptr) {
      run_dense(in_.dense, out_.dense, s.count, size);
    } else {
      run_fit(s, size);
    }
    if (stays) return;
    out_.each(to, s.output_stride, s.count, size,
              [](std::byte* row, const std::byte* dense, std::size_t bytes) {
                std::memcpy(row, dense, bytes);
              });
  }

  void run_dense(std::span<const std::byte* const> in, std::span<std::byte* const> out,
                 std::uint32_t count, std::uint32_t size) {
    session_->run(in, out, count, size, end_, given_up_);
  }
  [[nodiscard]] bool is_given_up() const noexcept {
    return given_up_ != nullptr && given_up_->load();
  }
  /// Runs the dense rows or, if that fails, the row computed before.
  void run_sample(const slice& s, std::uint32_t size) {
    try {
      run_dense(in_.dense, out_.dense, s.count, size);
    } catch (const device_error&) {
      if (is_given_up() || !runs_computed()) throw;
    }
  }
  /// Runs the dense rows. If that fails, but zeros or the row computed before still run, the model
  /// and the device are healthy: the rows that fail alone are unfit.
  void run_fit(const slice& s, std::uint32_t size) {
    try {
      run_dense(in_.dense, out_.dense, s.count, size);
      if (computed_.empty()) keep(0, size);
      return;
    } catch (const device_error&) {
      const std::uint32_t largest = session_->interface().max_size;
      // Some lengths may fail for all values.
      const bool is_well = runs_zeros(size) || runs_computed() || runs_zeros(largest);
      if (is_given_up() || !is_well) throw;
    }
    if (s.is_whole) {
      if (!runs(in_.dense, out_.dense, s.count, size)) {
        if (is_given_up()) throw device_error{"the run was given up"};
        std::fill_n(s.unfit, s.count, slot_state::unfit);
      }
      return;
    }
    // Enough for two, wherever they are.
    const auto levels = static_cast<std::uint32_t>(std::bit_width(s.count - 1));
    std::uint32_t parts = std::max(1U, 4 * levels);
    find_unfit(s.unfit, 0, s.count, size, parts);
  }
  /// Keeps a copy of a dense row that can be computed. One is enough until it fails.
  void keep(std::uint32_t row, std::uint32_t size) {
    const std::vector<std::byte*> from = in_.behind(row, size);
    computed_.resize(in_.layout.bytes());
    computed_size_ = size;
    const std::vector<std::byte*> to = in_.tensors_of(computed_.data());
    for (std::size_t i = 0; i < to.size(); ++i) {
      std::memcpy(to[i], from[i], in_.tensors[i].bytes(size));
    }
  }
  [[nodiscard]] bool runs_computed() {
    if (computed_.empty()) return false;
    std::vector<std::byte> out(out_.layout.bytes());
    if (runs(in_.tensors_of(computed_.data()), out_.tensors_of(out.data()), 1, computed_size_)) {
      return true;
    }
    if (!is_given_up()) computed_.clear();
    return false;
  }
  [[nodiscard]] bool runs_zeros(std::uint32_t size) {
    std::vector<std::byte> in(in_.layout.bytes());
    std::vector<std::byte> out(out_.layout.bytes());
    return runs(in_.tensors_of(in.data()), out_.tensors_of(out.data()), 1, size);
  }
  /// Finds the unfit rows of a failing part by halving: one among n costs 2 log2 n runs.
  /// @param parts Number of parts that may still run.
  void find_unfit(std::uint8_t* unfit, std::uint32_t first, std::uint32_t count, std::uint32_t size,
                  std::uint32_t& parts) {
    const auto try_part = [&](std::uint32_t from, std::uint32_t n) {
      if (parts == 0) {
        std::fill_n(unfit + from, n, slot_state::unknown);
        return;
      }
      --parts;
      if (runs(in_.behind(from, size), out_.behind(from, size), n, size)) {
        if (computed_.empty()) keep(from, size);
        return;
      }
      // A run that was given up does not make its rows unfit.
      if (is_given_up()) throw device_error{"the run was given up"};
      if (n == 1) {
        unfit[from] = slot_state::unfit;
      } else {
        find_unfit(unfit, from, n, size, parts);
      }
    };
    const std::uint32_t half = count / 2;
    if (half > 0) try_part(first, half);
    try_part(first + half, count - half);
  }
  [[nodiscard]] bool runs(const std::vector<std::byte*>& in, const std::vector<std::byte*>& out,
                          std::uint32_t count, std::uint32_t size) {
    try {
      run_dense(in, out, count, size);
      return true;
    } catch (const device_error&) {
      return false;
    }
  }

  Executor* executor_;
  std::shared_ptr<const session> session_;
  std::uint32_t batch_max_;
  side in_, out_;
  run_end end_;
  const std::atomic<bool>* given_up_ = nullptr;  // Of the running slice.
  std::vector<std::byte> computed_;              // A row that ran, of this size.
  std::uint32_t computed_size_ = 0;
};

}  // namespace cohort::runtime::onnx
