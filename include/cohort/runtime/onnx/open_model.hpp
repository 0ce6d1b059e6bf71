// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models whose requests have shapes of their own: `open_runs`, `open_model`.
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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::runtime::onnx {

/// A request of a model with open shapes, and what became of it. Several devices may come to run
/// it, one after another gave up: what the first to end has found stays. Thread safety: `end` from
/// any thread; what it has set may be read once an engine has told of the request's end.
class open_run {
 public:
  explicit open_run(std::vector<shaped_tensor> in) : inputs_{std::move(in)} {}

  /// In the order of the session's interface.
  [[nodiscard]] const std::vector<shaped_tensor>& inputs() const noexcept { return inputs_; }
  /// Likewise; none of one that could not be computed.
  [[nodiscard]] const std::vector<shaped_tensor>& outputs() const noexcept { return outputs_; }
  /// Why not: ONNX Runtime's words.
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

/// The requests of such a model that are under way, by number. Their tensors have no common shape
/// that a row of a batch could be made for, so what goes through an engine as a row is the number
/// alone (`row`), and a device finds the tensors by it when their run begins. A request that nobody
/// wants any more is taken out: a device that comes to its number later finds nothing. Thread
/// safety: any thread.
class open_runs {
 public:
  /// The number that stands for a sample, of shapes that the session is known to compute.
  static constexpr std::uint64_t sample_number = 0;

  /// @param of Not null; `is_open()`.
  explicit open_runs(std::shared_ptr<const session> of) : session_{std::move(of)} {
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
  /// @returns Null if it has left. O(log n).
  [[nodiscard]] std::shared_ptr<open_run> find(std::uint64_t number) const noexcept {
    const std::lock_guard lock{mutex_};
    const auto at = runs_.find(number);
    return at == runs_.end() ? nullptr : at->second;
  }

  /// Inputs that can be computed: zeros and empty strings, else those of the first request that
  /// could be. Null: none is known yet.
  [[nodiscard]] std::shared_ptr<const open_run> sample() const noexcept {
    const std::lock_guard lock{mutex_};
    return sample_;
  }
  /// What the time of a run is taken to grow with: the bytes of its inputs, and 1 KiB for each
  /// string, so that a run of empty strings is not taken to be a run of nothing.
  [[nodiscard]] std::size_t weight(const open_run& r) const noexcept {
    std::size_t bytes = r.input_bytes();
    for (std::size_t i = 0; i < r.inputs().size(); ++i) {
      if (!has_fixed_size(session_->interface().inputs[i].type)) {
        bytes += 1024 * elements_of(r.inputs()[i].shape);
      }
    }
    return bytes;
  }
  /// Of the sample; 0: none is known.
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

  /// What goes through an engine: one row, a number.
  [[nodiscard]] model_interface row() const {
    const tensor_info number{
        .name = "number", .type = data_type::u64, .shape = {1}, .range = value_range{0, 0}};
    return {.name = session_->interface().name, .inputs = {number}, .outputs = {number}};
  }

 private:
  std::shared_ptr<const session> session_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<open_run>> runs_;
  std::uint64_t last_ = sample_number;
  std::shared_ptr<const open_run> sample_;
};

/// A session with open shapes as a staged model of one stage, whose rows are numbers of
/// `open_runs`. A slice that is one request's (`slice::is_whole`) is one run, however many rows it
/// has; of others each row is. A run that fails, though the sample does not, fails as unfit where
/// the slice can tell that. Thread safety: as `onnx_model`. Models: `staged_model`.
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
  /// Ends what runs now, if it was given up. Any thread.
  void interrupt() noexcept { end_.ask(); }

 private:
  void run(const slice& s) {
    const std::uint32_t runs = s.is_whole ? 1 : s.count;
    for (std::uint32_t i = 0; i < runs; ++i) {
      std::uint64_t number = open_runs::sample_number;
      std::memcpy(&number, s.input + (s.first + i) * s.input_stride, sizeof(number));
      if (s.is_sample || number == open_runs::sample_number) {
        run_sample(s);
      } else if (!run_request(s, number)) {
        std::fill_n(s.unfit + i, s.is_whole ? s.count : 1, slot_state::unfit);
      }
    }
  }
  void run_sample(const slice& s) {
    // Where nothing is known that could be computed nothing is.
    if (const auto sample = runs_->sample()) {
      static_cast<void>(runs_->of().run_shaped(sample->inputs(), end_, s.given_up));
    }
  }
  /// @returns Whether it fits.
  bool run_request(const slice& s, std::uint64_t number) {
    const std::shared_ptr<open_run> r = runs_->find(number);
    if (r == nullptr) throw device_error{"the request is not there any more"};
    try {
      r->end(runs_->of().run_shaped(r->inputs(), end_, s.given_up), {});
      runs_->keep(*r);
      return true;
    } catch (const device_error& e) {
      if (s.unfit == nullptr || (s.given_up != nullptr && s.given_up->load())) throw;
      run_sample(s);  // Fails if the device does.
      if (s.given_up != nullptr && s.given_up->load()) throw;
      r->end({}, e.what());
      return false;
    }
  }

  Executor* executor_;
  std::shared_ptr<open_runs> runs_;
  run_end end_;
};

}  // namespace cohort::runtime::onnx
