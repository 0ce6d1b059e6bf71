// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models that accept inputs of any shape, a different one for each request: `open_runs`,
/// `open_model`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/onnx/model.hpp>
#include <cohort/runtime/onnx/session.hpp>
#include <cohort/runtime/shaped_tensor.hpp>
#include <cohort/runtime/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::runtime::onnx {

/// A request of a model with open shapes, and its result. Several devices may run it, each after
/// another one gave up: the result of the first to end is kept. Thread safety: `end` from any
/// thread; what it has set may be read once an engine has reported the request's end.
class open_run {
 public:
  explicit open_run(std::vector<shaped_tensor> in) : inputs_{std::move(in)} {}

  /// Inputs in the order of the session's interface.
  [[nodiscard]] const std::vector<shaped_tensor>& inputs() const noexcept { return inputs_; }
  /// Outputs in that order; empty if the request could not be computed.
  [[nodiscard]] const std::vector<shaped_tensor>& outputs() const noexcept { return outputs_; }
  /// ONNX Runtime's message if it could not be computed.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] std::size_t input_bytes() const noexcept {
    std::size_t bytes = 0;
    for (const shaped_tensor& t : inputs_) bytes += t.bytes.size();
    return bytes;
  }

  void end(std::vector<shaped_tensor> outputs, std::string error) {
    const std::lock_guard lock{mutex_};
    if (std::exchange(has_ended_, true)) return;
    outputs_ = std::move(outputs);
    error_ = std::move(error);
  }

 private:
  std::vector<shaped_tensor> inputs_;
  std::mutex mutex_;
  bool has_ended_ = false;
  std::vector<shaped_tensor> outputs_;
  std::string error_;
};

/// One tensor of the rows of several, one behind the other. @param of Alike behind their first
/// dimension, which is the number of rows; not empty. @throws std::bad_alloc
[[nodiscard]] inline shaped_tensor joined(std::span<const shaped_tensor* const> of) {
  std::size_t bytes = 0;
  std::int64_t rows = 0;
  for (const shaped_tensor* t : of) {
    bytes += t->bytes.size();
    rows += t->shape.front();
  }
  constexpr std::size_t line = 64;  // A tensor is aligned to.
  std::size_t room = bytes + line;
  const std::shared_ptr<std::byte[]> block{new std::byte[room]};
  void* free = block.get();
  auto* const begin = static_cast<std::byte*>(std::align(line, bytes, free, room));
  std::byte* to = begin;
  for (const shaped_tensor* t : of) to = std::ranges::copy(t->bytes, to).out;
  shaped_tensor all{.shape = of.front()->shape, .bytes = {begin, bytes}, .owner = block};
  all.shape.front() = rows;
  return all;
}

/// Cuts a tensor into parts with the given numbers of rows, each in its own memory, so keeping one
/// keeps no other. @param rows Their sum is not 0.
/// @returns Nothing if its first dimension is not that sum. @throws std::bad_alloc
[[nodiscard]] inline std::vector<shaped_tensor> cut(const shaped_tensor& of, data_type type,
                                                    std::span<const std::int64_t> rows) {
  const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  std::vector<shaped_tensor> parts;
  if (of.shape.empty() || of.shape.front() != all) return parts;
  const std::size_t strings = elements_of(of.shape) / static_cast<std::size_t>(all);
  std::span<const std::byte> left = of.bytes;
  for (const std::int64_t n : rows) {
    const auto count = static_cast<std::size_t>(n);
    std::span<const std::byte> behind = left;
    if (has_fixed_size(type)) {
      behind = left.subspan(of.bytes.size() / static_cast<std::size_t>(all) * count);
    } else {
      for (std::size_t i = 0; i < strings * count; ++i) static_cast<void>(take_string(behind));
    }
    const shaped_tensor here{.shape = of.shape, .bytes = left.first(left.size() - behind.size())};
    const shaped_tensor* const one = &here;
    parts.push_back(joined({&one, 1}));
    parts.back().shape.front() = n;
    left = behind;
  }
  return parts;
}

/// The unfinished requests of such a model, by number. Their tensors have no common shape for a row
/// of a batch, so an engine handles only the number as a row (`row`), and a device looks up the
/// tensors when their run begins. A request that is no longer wanted is removed: a device that
/// later looks up its number finds nothing. Thread safety: any thread.
class open_runs {
 public:
  /// The number that stands for a sample, of shapes that the session is known to compute.
  static constexpr std::uint64_t sample_number = 0;

  /// @param of Not null; `is_open()`.
  /// @param most_rows Maximum number of rows that run together. Requests can run together if their
  /// inputs differ only in the first dimension, the number of rows, and outputs can be cut into
  /// rows; 0 means that each runs alone.
  explicit open_runs(std::shared_ptr<const session> of, std::uint32_t most_rows = 0)
      : session_{std::move(of)}, most_rows_{most_rows} {
    if (session_->sample_shapes().empty()) return;
    std::vector<shaped_tensor> inputs;
    for (std::size_t i = 0; i < session_->interface().inputs.size(); ++i) {
      std::vector<std::int64_t> shape = session_->sample_shapes()[i];
      // Of strings, too: a length of 0 for each.
      const auto zeros = std::make_shared<const std::vector<std::byte>>(
          bytes_of(session_->interface().inputs[i].type) * elements_of(shape));
      inputs.push_back({std::move(shape), *zeros, zeros});
    }
    sample_ = std::make_shared<const open_run>(std::move(inputs));
  }

  [[nodiscard]] const session& of() const noexcept { return *session_; }
  [[nodiscard]] std::uint32_t most_rows() const noexcept { return most_rows_; }
  /// From now on each request runs alone. Any thread.
  void run_each_alone() noexcept { most_rows_ = 0; }
  /// Reports whether requests ran together (`joined_well`) or could only run alone. After eight
  /// failures in a row no more requests are joined. Any thread.
  void joined_well() noexcept { failures_ = 0; }
  void joined_badly() noexcept {
    if (++failures_ >= 8) run_each_alone();
  }

  /// @returns Its number, never 0. O(log n). @throws std::bad_alloc
  [[nodiscard]] std::uint64_t enter(std::shared_ptr<open_run> r) {
    const std::lock_guard lock{mutex_};
    runs_.emplace(last_ + 1, std::move(r));
    return ++last_;
  }
  /// O(log n).
  void leave(std::uint64_t number) noexcept {
    const std::lock_guard lock{mutex_};
    runs_.erase(number);
  }
  /// @returns The request, or null if it has left. O(log n).
  [[nodiscard]] std::shared_ptr<open_run> find(std::uint64_t number) const noexcept {
    const std::lock_guard lock{mutex_};
    const auto at = runs_.find(number);
    return at == runs_.end() ? nullptr : at->second;
  }

  /// Inputs that can be computed: zeros and empty strings, otherwise those of the first request
  /// that could be. Null if none is known yet.
  [[nodiscard]] std::shared_ptr<const open_run> sample() const noexcept {
    const std::lock_guard lock{mutex_};
    return sample_;
  }
  /// The measure that a run's time is assumed to grow with: the bytes of its inputs plus 1 KiB per
  /// string, so that a run of empty strings does not count as 0.
  [[nodiscard]] std::size_t weight(const open_run& r) const noexcept {
    std::size_t bytes = r.input_bytes();
    for (std::size_t i = 0; i < r.inputs().size(); ++i) {
      if (!has_fixed_size(session_->interface().inputs[i].type)) {
        bytes += 1024 * elements_of(r.inputs()[i].shape);
      }
    }
    return bytes;
  }
  /// Weight of the sample; 0 if none is known.
  [[nodiscard]] std::size_t sample_weight() const noexcept {
    const std::lock_guard lock{mutex_};
    return sample_ == nullptr ? 0 : weight(*sample_);
  }
  /// These inputs can be computed. They are kept if there is no sample and they are small.
  void keep(const open_run& r) {
    constexpr std::size_t most = std::size_t{16} << 20U;
    const std::lock_guard lock{mutex_};
    if (sample_ != nullptr || r.input_bytes() > most) return;
    sample_ = std::make_shared<const open_run>(r.inputs());
  }
  /// These are the sample from now on.
  void use(std::shared_ptr<const open_run> sample) noexcept {
    const std::lock_guard lock{mutex_};
    sample_ = std::move(sample);
  }

  /// The interface that an engine sees: one row with a number.
  [[nodiscard]] model_interface row() const {
    const tensor_info number{
        .name = "number", .type = data_type::u64, .shape = {1}, .range = value_range{0, 0}};
    return {.name = session_->interface().name, .inputs = {number}, .outputs = {number}};
  }

 private:
  std::shared_ptr<const session> session_;
  std::atomic<std::uint32_t> most_rows_;
  std::atomic<unsigned> failures_{0};
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<open_run>> runs_;
  std::uint64_t last_ = sample_number;
  std::shared_ptr<const open_run> sample_;
};

/// A session with open shapes as a staged model of one stage, whose rows are numbers of
/// `open_runs`. A slice that is one request's (`slice::is_whole`) is one run, however many rows it
/// has. In other slices, requests that are alike run together, as `open_runs` says, and the rest
/// run one after another. A run that fails although the sample does not is reported as unfit where
/// the slice allows it; requests that ran together are first run again one by one. Thread safety:
/// as `onnx_model`. Models: `staged_model`.
template <executor Executor>
  requires requirement::launches_host_work<Executor>
class open_model {
 public:
  open_model(Executor& e, std::shared_ptr<open_runs> runs)
      : executor_{&e}, runs_{std::move(runs)}, end_{runs_->of()} {}
  open_model(const open_model&) = delete;  // Work on streams points to it.
  open_model& operator=(const open_model&) = delete;

  [[nodiscard]] std::string_view name() const noexcept { return runs_->of().interface().name; }
  [[nodiscard]] std::size_t stages() const noexcept { return 1; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t /*boundary*/) const noexcept {
    return sizeof(std::uint64_t);
  }
  void enqueue(std::size_t /*stage*/, typename Executor::stream& stream, const slice& s) {
    executor_->launch(stream, [this, s] { run(s); });
  }
  /// Ends the current run if it was given up. Any thread.
  void interrupt() noexcept { end_.ask(); }

 private:
  /// A row of a slice.
  struct entry {
    std::uint32_t row;
    std::shared_ptr<open_run> request;      // Null: the sample.
    std::shared_ptr<const open_run> asked;  // Provides the inputs.
  };
  using entries = std::span<const entry>;

  void run(const slice& s) {
    const std::uint32_t rows = s.is_whole ? 1 : s.count;
    std::vector<entry> all;
    bool is_gone = false;
    for (std::uint32_t i = 0; i < rows; ++i) {
      std::uint64_t number = open_runs::sample_number;
      std::memcpy(&number, s.input + (s.first + i) * s.input_stride, sizeof(number));
      const bool is_sample = s.is_sample || number == open_runs::sample_number;
      entry e{.row = i,
              .request = is_sample ? nullptr : runs_->find(number),
              .asked = is_sample ? runs_->sample() : nullptr};
      if (e.request != nullptr) e.asked = e.request;
      // Without a known sample nothing is computed.
      is_gone = is_gone || (e.asked == nullptr && !is_sample);
      if (e.asked != nullptr) all.push_back(std::move(e));
    }
    if (all.empty() && is_gone) throw device_error{"the request is not there any more"};
    for (entries left{all}; !left.empty();) {
      const std::size_t n = alike(all, left);
      run_together(s, left.first(n));
      left = left.subspan(n);
    }
  }
  /// Moves the requests that can run with the first of `left` behind it. @returns How many run with
  /// it.
  [[nodiscard]] std::size_t alike(std::vector<entry>& all, entries left) const {
    const std::size_t first = all.size() - left.size();
    const std::vector<shaped_tensor>& like = all[first].asked->inputs();
    const std::int64_t most = runs_->most_rows();
    const std::optional<std::int64_t> rows = rows_of(like);
    if (!rows) return 1;
    std::size_t n = 1;
    for (std::size_t i = first + 1, sum = static_cast<std::size_t>(*rows); i < all.size(); ++i) {
      const std::vector<shaped_tensor>& other = all[i].asked->inputs();
      const std::optional<std::int64_t> more = rows_of(other);
      const bool fits =
          more && static_cast<std::int64_t>(sum) + *more <= most &&
          std::ranges::equal(like, other, [](const auto& x, const auto& y) {
            return std::ranges::equal(x.shape | std::views::drop(1), y.shape | std::views::drop(1));
          });
      if (!fits) continue;
      sum += static_cast<std::size_t>(*more);
      std::rotate(all.begin() + static_cast<std::ptrdiff_t>(first + n),
                  all.begin() + static_cast<std::ptrdiff_t>(i),
                  all.begin() + static_cast<std::ptrdiff_t>(i + 1));
      ++n;
    }
    return n;
  }
  /// The first dimension of all inputs, which is the number of rows; nothing if they differ.
  [[nodiscard]] static std::optional<std::int64_t> rows_of(const std::vector<shaped_tensor>& of) {
    for (const shaped_tensor& t : of) {
      if (t.shape.empty() || t.shape.front() < 1 || t.shape.front() != of[0].shape.front()) {
        return std::nullopt;
      }
    }
    return of.empty() ? std::nullopt : std::optional{of[0].shape.front()};
  }

  void run_together(const slice& s, entries of) {
    if (of.size() > 1) {
      const bool are_samples =
          std::ranges::all_of(of, [](const entry& e) { return e.request == nullptr; });
      try {
        if (run_joined(s, of)) return runs_->joined_well();
        runs_->run_each_alone();
      } catch (const device_error&) {
        if ((s.unfit == nullptr && !are_samples) || is_given_up(s)) throw;
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): alone they may fit.
      }
    }
    bool fit = true;
    for (const entry& e : of) {
      if (e.request == nullptr) {
        run_sample(s);
      } else if (!run_request(s, *e.request)) {
        std::fill_n(s.unfit + e.row, s.is_whole ? s.count : 1, slot_state::unfit);
        fit = false;
      }
    }
    if (of.size() > 1 && fit) runs_->joined_badly();
  }
  /// @returns False if an output has no rows to cut it into.
  bool run_joined(const slice& s, entries of) {
    std::vector<std::int64_t> rows;
    for (const entry& e : of) rows.push_back(e.asked->inputs()[0].shape.front());
    std::vector<shaped_tensor> inputs;
    for (std::size_t i = 0; i < of[0].asked->inputs().size(); ++i) {
      std::vector<const shaped_tensor*> parts;
      for (const entry& e : of) parts.push_back(&e.asked->inputs()[i]);
      inputs.push_back(joined(parts));
    }
    std::vector<std::vector<shaped_tensor>> outputs(of.size());
    const std::vector<tensor_info>& types = runs_->of().interface().outputs;
    const std::vector<shaped_tensor> computed = runs_->of().run_shaped(inputs, end_, s.given_up);
    for (std::size_t k = 0; k < computed.size(); ++k) {
      std::vector<shaped_tensor> parts = cut(computed[k], types[k].type, rows);
      if (parts.empty()) return false;
      for (std::size_t i = 0; i < of.size(); ++i) outputs[i].push_back(std::move(parts[i]));
    }
    for (std::size_t i = 0; i < of.size(); ++i) {
      if (of[i].request == nullptr) continue;
      of[i].request->end(std::move(outputs[i]), {});
      runs_->keep(*of[i].request);
    }
    return true;
  }
  void run_sample(const slice& s) {
    if (const auto sample = runs_->sample()) {
      static_cast<void>(runs_->of().run_shaped(sample->inputs(), end_, s.given_up));
    }
  }
  /// @returns Whether it fits.
  bool run_request(const slice& s, open_run& r) {
    try {
      r.end(runs_->of().run_shaped(r.inputs(), end_, s.given_up), {});
      runs_->keep(r);
      return true;
    } catch (const device_error& e) {
      if (s.unfit == nullptr || is_given_up(s)) throw;
      run_sample(s);  // Fails if the device does.
      if (is_given_up(s)) throw;
      r.end({}, e.what());
      return false;
    }
  }
  [[nodiscard]] static bool is_given_up(const slice& s) noexcept {
    return s.given_up != nullptr && s.given_up->load();
  }

  Executor* executor_;
  std::shared_ptr<open_runs> runs_;
  run_end end_;
};

}  // namespace cohort::runtime::onnx
