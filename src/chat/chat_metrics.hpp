// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics of the LLM server.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/kv/batch/prepared.hpp>
#include <cohort/serve/metric_page.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace cohort::chat {

/// The generator between two turns.
struct generator_counts {
  std::size_t running = 0;
  std::size_t waiting = 0;
  std::uint64_t kv_used = 0;  ///< Bytes of live columns.
  std::uint64_t kv_held = 0;  ///< Of the batch's memory.
  /// Since the start.
  std::uint64_t iterations = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t starved = 0;  ///< Empty slots, summed over iterations in which a sequence waited.
};

/// Why a request is not accepted.
enum class chat_refusal : std::uint8_t {
  queue_full,       ///< There is no room for its sequences: 429.
  no_slot,          ///< No slot would be free for long: 429.
  first_token_slo,  ///< The first token would come too late: 429.
  no_device,        ///< The device hangs or fails, or the generator has failed: 503.
};

/// The table of metrics: its members. Further down, the events that count in several of them.
/// Thread safety: any thread.
class chat_metrics : public serve::metric_page {
 public:
  serve::gauge running{*this, {"cohort_llm_running_sequences", "Sequences in the decode batch"}};
  serve::gauge waiting{
      *this, {"cohort_llm_waiting_sequences", "Sequences queued, in prefill or preempted"}};
  serve::gauge kv_used{*this,
                       {"cohort_llm_kv_used_bytes", "Bytes of keys and values of live sequences"}};
  serve::gauge kv_held{
      *this, {"cohort_llm_kv_held_bytes", "Memory of the decode batch, padding included"}};
  serve::gauge kv_budget{*this,
                         {"cohort_llm_kv_budget_bytes", "Limit of cohort_llm_kv_held_bytes"}};
  serve::counter iterations{*this,
                            {"cohort_llm_iterations_total", "Iterations of the decode batch"}};
  serve::counter preemptions{
      *this, {"cohort_llm_preemptions_total", "Sequences preempted: their slot went to another"}};
  serve::counter bubbles{*this,
                         {"cohort_llm_bubbles_total",
                          "Empty slots, summed over iterations in which a sequence was ready"}};
  serve::counter prompt_tokens{*this,
                               {"cohort_llm_prompt_tokens_total", "Tokens of accepted prompts"}};
  serve::counter new_tokens{*this, {"cohort_llm_generated_tokens_total", "Tokens generated"}};
  serve::counter refusals{*this,
                          {.name = "cohort_llm_refused_total",
                           .help = "Requests that were not accepted, by reason",
                           .label = "reason",
                           .values = {"queue_full", "no_slot", "first_token_slo", "no_device"}}};
  serve::histogram first_token_seconds{*this,
                                       {.name = "cohort_llm_time_to_first_token_seconds",
                                        .help = "Time from arrival to the first token",
                                        .buckets = long_seconds()}};
  serve::histogram gap_seconds{*this,
                               {.name = "cohort_llm_inter_token_seconds",
                                .help = "Time between two tokens of a sequence",
                                .buckets = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05,
                                            0.075, 0.1, 0.15, 0.2, 0.5, 1}}};
  serve::histogram request_seconds{*this,
                                   {.name = "cohort_llm_sequence_seconds",
                                    .help = "Time from arrival to the end of a sequence",
                                    .buckets = long_seconds()}};
  serve::text_counter requests{*this,
                               {.name = "cohort_llm_sequences_total",
                                .help = "Sequences that ended, by reason",
                                .label = "reason"}};
  serve::changing_gauge device_state{
      *this,
      {.name = "cohort_llm_device_state",
       .help = "1 for the present state of the device, 0 for its other states"}};
  serve::counter device_changes{*this,
                                {.name = "cohort_llm_device_changes_total",
                                 .help = "Changes of the device into or out of quarantine",
                                 .label = "to",
                                 .values = {"quarantined", "healthy"}}};
  serve::text_counter answers{
      *this,
      {.name = "cohort_http_responses_total", .help = "HTTP answers by status", .label = "status"}};
  serve::http_counters http{*this};

  explicit chat_metrics(std::uint64_t budget) { kv_budget.set(static_cast<double>(budget)); }

  void prompt(std::size_t tokens) { prompt_tokens.add(static_cast<double>(tokens)); }
  void first_token(duration since_arrival) {
    first_token_seconds.observe(to_seconds(since_arrival));
    new_tokens.add();
  }
  /// Of a further one, since the one before it.
  void next_token(duration gap) {
    gap_seconds.observe(to_seconds(gap));
    new_tokens.add();
  }
  void ended(kv::finish_reason why, duration since_arrival) {
    requests.add(std::string{kv::to_string(why)});
    request_seconds.observe(to_seconds(since_arrival));
  }
  void refused(chat_refusal why) { refusals.add(1, 0, static_cast<std::size_t>(why)); }
  void refused(serve::http_bound full) { http.add(full); }
  void answered(int status) { answers.add(std::to_string(status)); }
  void set(const generator_counts& c) {
    running.set(static_cast<double>(c.running));
    waiting.set(static_cast<double>(c.waiting));
    kv_used.set(static_cast<double>(c.kv_used));
    kv_held.set(static_cast<double>(c.kv_held));
    iterations.raise_to(static_cast<double>(c.iterations));
    preemptions.raise_to(static_cast<double>(c.preemptions));
    bubbles.raise_to(static_cast<double>(c.starved));
  }

 private:
  static std::vector<double> long_seconds() {
    return {0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300};
  }
};

}  // namespace cohort::chat
