// SPDX-License-Identifier: Apache-2.0
/// @file
/// An infer request whose turn has come, and its answer.
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

/// One infer request: its rows, each a request of the engine, or all of them one, whose input is
/// where it came: in the body that the client holds, or was parsed to. Belongs to itself until the
/// last of its parts has ended.
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
  serve::held_bytes memory;               // Of what it takes beside its body.
  std::vector<engine::row_piece> pieces;  // Of all parts, behind their first.
  std::vector<part> parts;                // Of as many rows each.
  // Of a model that is open: its tensors, by a number which is what the engine gets.
  std::string sequence;  // Its key.
  bool waits = false;    // For its turn in that: the client's `on_gone` is about this job.
  std::vector<runtime::shaped_tensor> inputs;  // Until they are the run's.
  std::shared_ptr<runtime::onnx::open_run> run;
  std::vector<runtime::shaped_tensor> outputs;  // Of its answer, as clients have them.
  std::string cache_key;                        // What its answer is kept by; empty: it is not.
  std::optional<duration> cache_time;  // If its answer was looked for: what that and keeping took.
  step_ptr step;                       // Its client, if that is a step of an ensemble.
  std::uint64_t number = 0;
  std::uint64_t row_out = 0;  // An engine gives back a row, too.
  std::atomic<std::size_t> left{0};
  std::optional<refusal> why_refused;
  bool abandoned = false;  // The client has gone.
  time_point arrival;      // Here; it waited then, and became a request of the engine.
  time_point taken;        // To be parsed.
  time_point submitted;    // Parsed.
  time_point ended;        // In the engine, its last part; set before this thread is told.

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
  /// Rows of the client's in a part.
  [[nodiscard]] std::uint32_t rows_of_part() const noexcept {
    return asked.rows / static_cast<std::uint32_t>(parts.size());
  }
};

/// An infer request that is read, on this thread or another.
struct infer_app::reading {
  unread asked;
  model_catalog::entry model;
  time_point arrival;  // Its deadline counts from here.
  time_point until{};  // Later it is not worth reading.
  bool is_late = false;
  std::unique_ptr<infer_job> job{};
  std::optional<serve::protocol_error> error{};  // Else: why there is none.
  std::size_t lacks = 0;                         // Or so many bytes, for want of which.
};

/// An answer that is written while its client takes it.
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

  client_ptr client;  // Until its answer begins.
  model_catalog::entry model;
  serve::infer_request asked;
  infer_bytes output;
  serve::held_bytes memory;
  std::shared_ptr<const runtime::onnx::open_run> run;  // An output may be an input itself.
  std::vector<runtime::shaped_tensor> outputs;
  serve::infer_writer writer;
};

}  // namespace cohort::inference
