// SPDX-License-Identifier: Apache-2.0
// Infer requests to ensembles. Each step becomes an ordinary request to its model, with the time
// that remains.
#include "infer_app.hpp"

#include "infer_job.hpp"

#include <cohort/serve/metrics.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <serve/barrier.hpp>
#include <string>
#include <utility>
#include <vector>

namespace cohort::inference {
namespace {

/// Maximum nesting of ensembles: an ensemble could have become a step of itself.
constexpr unsigned most_depth = 8;
/// Maximum number of steps of one client's request, nested ensembles included.
constexpr std::size_t most_steps = 1024;
/// Memory of a step besides its tensors.
constexpr std::size_t step_bytes = 4096;

}  // namespace

/// One request to an ensemble, owned by the clients of its steps.
struct infer_app::ensemble_job {
  explicit ensemble_job(std::unique_ptr<infer_job> of)
      : asked{std::move(of)}, run{*asked->model->ensemble} {}

  std::unique_ptr<infer_job> asked;  // The client's request.
  ensemble_run run;
  std::optional<time_point> deadline;  // None: each model's own deadline applies.
  unsigned depth = 1;
  std::shared_ptr<std::size_t> begun;             // Steps begun for the client's request.
  std::vector<std::weak_ptr<step_client>> steps;  // Steps begun.
  std::size_t left = 0;                           // Steps that have not ended.
  bool is_over = false;                           // The client has its answer, or has gone.
};

/// The client of a step: keeps its body, and forwards errors.
struct infer_app::step_client final : serve::http_client {
  step_client(infer_app& a, std::shared_ptr<ensemble_job> j, std::uint32_t i)
      : app{a}, job{std::move(j)}, which{i}, memory{a.http_.memory()} {}

  void answer(serve::http_reply reply) override {
    if (job->is_over) return;
    const infer_job& asked = *job->asked;
    constexpr std::string_view before = R"({"error":")";
    if (reply.body.starts_with(before)) {
      std::string where =
          serve::json_string(fmt::format("ensemble '{}', step {} ('{}'): ", asked.model->meta.name,
                                         which, asked.model->ensemble->steps()[which].model));
      where = where.substr(1, where.size() - 2);
      reply.body.insert(before.size(), where);
    }
    asked.client->on_gone([] {});
    asked.client->answer(std::move(reply));
    app.end_ensemble(*job, outcome::failed);
  }
  // Answers to infer requests are not streamed.
  void begin(const std::string& /*type*/) override {}
  void send(std::string_view /*bytes*/) override {}
  void end() override {}
  void on_gone(std::function<void()> f) override { gone = std::move(f); }
  [[nodiscard]] bool is_gone() const override {
    return job->is_over || job->asked->client->is_gone();
  }

  infer_app& app;
  std::shared_ptr<ensemble_job> job;
  std::uint32_t which;
  std::string body;
  std::string json_length;
  serve::held_bytes memory;  // For the body.
  std::function<void()> gone = [] {};
};

/// Why the ensemble cannot run now, in one line; empty if it can.
/// @param is_deep Whether to look into ensembles within it, too.
std::string infer_app::missing_of(const served_model& ensemble, bool is_deep) const {
  std::string why;
  each_step(*catalog_, ensemble, is_deep, [&](const auto& of, const auto& s, const auto& m) {
    if (!why.empty()) return;
    const bool runs =
        m && (m->ensemble || (models_->serves(m->id) && !models_->is_suspended(m->id)));
    if (runs) return;
    why = fmt::format("ensemble '{}': model '{}'{} {}", of.meta.name, s.model,
                      s.version.empty() ? "" : fmt::format(", version {},", s.version),
                      m ? "is suspended for a while, or has no device" : "is not served");
  });
  return why;
}

/// @param j Parsed; its memory is reserved.
void infer_app::begin_ensemble(std::unique_ptr<infer_job> j) {
  const served_model& model = *j->model;
  const client_ptr client = j->client;
  const step_ptr outer = j->step;
  if (const std::string missing = missing_of(model, false); !missing.empty()) {
    count_failure(model, serve::failure::rejected, clock_.now() - j->arrival);
    return say(client, 503, missing, {{"Retry-After", "1"}});
  }
  const unsigned depth = outer ? outer->job->depth + 1 : 1;
  if (depth > most_depth) {
    return say(client, 400,
               fmt::format("ensembles are steps of each other: expected at most {} in each other",
                           most_depth));
  }
  j->submitted = clock_.now();
  const auto e = std::make_shared<ensemble_job>(std::move(j));
  const infer_job& asked = *e->asked;
  e->depth = depth;
  e->begun = outer ? outer->job->begun : std::make_shared<std::size_t>(0);
  if (asked.asked.timeout || model.meta.has_deadline) {
    e->deadline = asked.arrival + asked.asked.timeout.value_or(time_of(model.meta));
  }
  for (std::size_t i = 0; i < asked.asked.inputs.size(); ++i) {
    // An output may be the input itself, which the client holds only as long as itself.
    const auto copy = std::make_shared<const std::vector<std::byte>>(asked.asked.inputs[i].begin(),
                                                                     asked.asked.inputs[i].end());
    e->run.set(static_cast<std::uint32_t>(i), model.meta.inputs[i].type,
               {.shape = asked.asked.shapes[i], .bytes = *copy, .owner = copy});
  }
  e->left = model.ensemble->steps().size();
  client->on_gone([this, w = std::weak_ptr{e}] {
    if (const auto gone = w.lock()) end_ensemble(*gone, outcome::cancelled);
  });
  try {
    begin_steps(e);
  } catch (...) {
    client->on_gone([] {});
    end_ensemble(*e, outcome::failed);
    throw;  // The caller reports it to the client.
  }
}

void infer_app::begin_steps(const std::shared_ptr<ensemble_job>& e) {
  for (const std::uint32_t i : e->run.begin_ready()) {
    if (e->is_over) return;
    begin_step(e, i);
  }
}

void infer_app::begin_step(const std::shared_ptr<ensemble_job>& e, std::uint32_t which) {
  const ensemble_plan::step& s = e->asked->model->ensemble->steps()[which];
  const auto c = std::make_shared<step_client>(*this, e, which);
  e->steps.push_back(c);
  const model_catalog::entry found = catalog_->find(s.model, s.version);
  if (found == nullptr) {
    return say(c, 503, "the model is not served", {{"Retry-After", "1"}});
  }
  if (++*e->begun > most_steps) {
    return say(c, 400, fmt::format("the request has more than {} steps", most_steps));
  }
  std::string json = R"({"inputs":[)";
  std::size_t bytes = 0;
  for (const ensemble_plan::port& p : s.inputs) {
    const ensemble_run::tensor& t = e->run.at(p.tensor);
    fmt::format_to(
        std::back_inserter(json),
        R"({}{{"name":{},"datatype":"{}","shape":[{}],"parameters":{{"binary_data_size":{}}}}})",
        json.ends_with('[') ? "" : ",", serve::json_string(p.name), runtime::name_of(t.type),
        fmt::join(t.value.shape, ","), t.value.bytes.size());
    bytes += t.value.bytes.size();
  }
  json += R"(],"outputs":[)";
  for (const ensemble_plan::port& p : s.outputs) {
    fmt::format_to(std::back_inserter(json), R"({}{{"name":{}}})", json.ends_with('[') ? "" : ",",
                   serve::json_string(p.name));
  }
  json += R"(],"parameters":{"binary_data_output":true)";  // The answer is never written as JSON.
  if (e->deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(*e->deadline - clock_.now());
    fmt::format_to(std::back_inserter(json), R"(,"timeout":{})",
                   std::max<std::int64_t>(1, left.count()));
  }
  json += '}';
  json += '}';
  if (!c->memory.resize(json.size() + bytes + step_bytes)) {
    counters_.refused(serve::http_bound::memory);
    return say(c, 429, "there is no memory for what it takes", {{"Retry-After", "1"}});
  }
  c->json_length = fmt::to_string(json.size());
  c->body = std::move(json);
  c->body.reserve(c->body.size() + bytes);
  for (const ensemble_plan::port& p : s.inputs) {
    const std::span<const std::byte> from = e->run.at(p.tensor).value.bytes;
    c->body.append(reinterpret_cast<const char*>(from.data()), from.size());
  }
  offer(found, s.version,
        {.method = "POST",
         .path = {},
         .body = c->body,
         .authorization = {},
         .inference_header_length = c->json_length},
        c, c);
}

/// The outputs of a step are ready.
void infer_app::step_computed(step_client& c, infer_job& j) {
  const std::shared_ptr<ensemble_job> e = c.job;
  if (e->is_over) return;
  infer_job& asked = *e->asked;
  if (!asked.memory.resize(asked.memory.bytes() + j.output_bytes)) {
    counters_.refused(serve::http_bound::memory);
    return c.answer(
        error_reply(429, "there is no memory for what it made", {{"Retry-After", "1"}}));
  }
  const std::vector<runtime::shaped_tensor> made =
      !j.outputs.empty() ? std::move(j.outputs) : j.dense_outputs();
  for (const ensemble_plan::port& p : asked.model->ensemble->steps()[c.which].outputs) {
    const auto& infos = j.model->meta.outputs;
    const auto at = static_cast<std::size_t>(
        std::ranges::find(infos, p.name, &runtime::tensor_info::name) - infos.begin());
    e->run.set(p.tensor, infos[at].type, made[at]);
  }
  if (--e->left > 0) return begin_steps(e);
  for (std::size_t i = 0; i < asked.model->meta.outputs.size(); ++i) {
    const ensemble_run::tensor& t = e->run.at(asked.model->ensemble->outputs()[i]);
    const runtime::tensor_info& said = asked.model->meta.outputs[i];
    if (t.type != said.type) {
      asked.client->on_gone([] {});
      say(asked.client, 500,
          fmt::format("ensemble '{}': output '{}' is {}, but its configuration says {}",
                      asked.model->meta.name, said.name, runtime::name_of(t.type),
                      runtime::name_of(said.type)));
      return end_ensemble(*e, outcome::failed);
    }
    asked.outputs.push_back(t.value);
    asked.output_bytes += t.value.bytes.size();
  }
  asked.client->on_gone([] {});
  asked.step ? step_computed(*asked.step, asked) : write(asked);
  end_ensemble(*e, outcome::completed);
}

/// Finishes the job: steps that are still running are no longer needed.
void infer_app::end_ensemble(ensemble_job& e, outcome how) {
  if (std::exchange(e.is_over, true)) return;
  const infer_job& j = *e.asked;
  const time_point now = clock_.now();
  for (std::uint32_t i = 0; i < j.asked.rows; ++i) {
    counters_.ended(j.model->row, how, now - j.arrival);
  }
  if (how == outcome::completed) {
    serve::model_statistics& to = statistics_of(*j.model);
    to.success.add(now - j.arrival);
    to.queue.add(j.taken - j.arrival);
    to.compute_input.add(duration{0});  // The steps count their own.
    to.compute_infer.add(now - j.taken);
    to.compute_output.add(duration{0});
    to.last_inference = std::chrono::system_clock::now();
    for (std::uint32_t i = 0; i < j.asked.rows; ++i) to.ran(j.asked.rows, now - j.submitted);
    if (counters_.triton) counters_.triton->show(j.model->version_index(), to);
  } else {
    count_failure(*j.model,
                  how == outcome::cancelled ? serve::failure::canceled : serve::failure::other,
                  now - j.arrival);
  }
  for (const std::weak_ptr<step_client>& w : e.steps) {
    if (const step_ptr c = w.lock()) std::exchange(c->gone, [] {})();
  }
}

}  // namespace cohort::inference
