// SPDX-License-Identifier: Apache-2.0
/// @file
/// An infer request that is being served, and its answer.
#pragma once

#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/tensor_request.hpp>
#include <cohort/runtime/onnx/open_model.hpp>
#include <cohort/runtime/shaped_tensor.hpp>
#include <cohort/runtime/tensor.hpp>
#include <cohort/serve/byte_ledger.hpp>
#include <cohort/serve/http.hpp>
#include <cohort/serve/infer_request.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers.hpp"
#include "infer_app.hpp"

namespace cohort::inference {

struct free_memory {
  void operator()(std::byte* p) const noexcept { std::free(p); }
};

using infer_bytes = std::unique_ptr<std::byte[], free_memory>;

/// One infer request. Each of its rows, or all of them together, is a request of the engine. Its
/// inputs are in the client's body or in the memory that they were parsed into. The job owns itself
/// until its last part has ended.
struct infer_app::infer_job final : sequence_request {
  infer_job() = default;
  infer_job(const infer_job&) = delete;
  infer_job& operator=(const infer_job&) = delete;
  ~infer_job() override {
    if (waits) client->on_gone([] {});
    if (run) model->open->runs.leave(number);
  }

  struct part : engine::tensor_request {
    infer_job* owner = nullptr;
    outcome how = outcome::failed;
  };
  client_ptr client;
  model_catalog::entry model;
  serve::infer_request asked;
  infer_bytes output;
  std::size_t output_bytes = 0;
  serve::held_bytes memory;               // For everything except the body.
  std::vector<engine::row_piece> pieces;  // Pieces of all parts after the first piece of each.
  std::vector<part> parts;                // All have the same number of rows.
  // For open models: the tensors, and the number that the engine gets instead.
  std::string sequence;  // Key of the sequence.
  bool waits = false;    // For its turn; the client's `on_gone` then refers to this job.
  std::vector<runtime::shaped_tensor> inputs;  // Moved into the run.
  std::shared_ptr<runtime::onnx::open_run> run;
  std::vector<runtime::shaped_tensor> outputs;  // As clients see them.
  std::string cache_key;               // Key of the answer in the cache; empty: not cached.
  std::optional<duration> cache_time;  // Look-up and insertion in the cache, if used.
  step_ptr step;                       // The client, if it is a step of an ensemble.
  std::uint64_t number = 0;
  std::uint64_t row_out = 0;  // Unused output row: the engine requires one.
  std::atomic<std::size_t> left{0};
  std::optional<refusal> why_refused;
  bool abandoned = false;  // The client has gone.
  time_point arrival;      // Arrival here, not in the engine.
  time_point taken;        // Parsing began.
  time_point submitted;    // Parsing ended.
  time_point ended;        // Its last part ended in the engine; set before this thread is notified.

  [[nodiscard]] std::size_t bytes_needed(const runtime::row_layout& out) const noexcept;
  [[nodiscard]] std::size_t bytes_of_strings() const noexcept;
  [[nodiscard]] std::size_t known_outputs() const noexcept;
  void make_parts(const runtime::row_layout& in, const runtime::row_layout& out);
  void copy_inputs();
  void make_run();
  [[nodiscard]] std::vector<runtime::shaped_tensor> dense_outputs() const;
  [[nodiscard]] std::size_t cache_key_bytes() const noexcept;
  [[nodiscard]] std::string make_cache_key() const;
  static std::unique_ptr<infer_job> of(std::unique_ptr<sequence_request> r) {
    return std::unique_ptr<infer_job>{static_cast<infer_job*>(r.release())};
  }
  /// Number of the client's rows in each part.
  [[nodiscard]] std::uint32_t rows_of_part() const noexcept {
    return asked.rows / static_cast<std::uint32_t>(parts.size());
  }
};

/// An infer request that is being parsed, on this thread or another.
struct infer_app::reading {
  unread asked;
  model_catalog::entry model;
  time_point arrival;  // The deadline counts from here.
  time_point until{};  // A request parsed later than this would be too late.
  bool is_late = false;
  std::unique_ptr<infer_job> job{};
  std::optional<serve::protocol_error> error{};  // Set if there is no job.
  std::size_t lacks = 0;                         // Or the bytes that were not available.
};

/// An answer that is written while the client receives it.
struct infer_app::large_answer final : serve::http_body {
  explicit large_answer(infer_job& j)
      : client{j.client},
        model{j.model},
        asked{std::move(j.asked)},
        output{std::move(j.output)},
        memory{std::move(j.memory)},
        run{j.run},
        outputs{std::move(j.outputs)},
        writer{!outputs.empty()
                   ? serve::infer_writer{model->meta, asked, outputs}
                   : serve::infer_writer{
                         model->meta, model->output, asked, {output.get(), j.output_bytes}}} {
    asked.inputs.clear();
    asked.parsed.reset();
    memory.set(j.output_bytes + (run ? run->input_bytes() : 0));
  }
  [[nodiscard]] std::optional<std::size_t> size() const override { return writer.size(); }
  bool append_to(std::string& out) override { return writer.append_to(out, serve::http_piece); }

  client_ptr client;  // Null once the answer has begun.
  model_catalog::entry model;
  serve::infer_request asked;
  infer_bytes output;
  serve::held_bytes memory;
  std::shared_ptr<const runtime::onnx::open_run> run;  // An output may be the input itself.
  std::vector<runtime::shaped_tensor> outputs;
  serve::infer_writer writer;
};

}  // namespace cohort::inference
