// SPDX-License-Identifier: Apache-2.0
#include "metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <string>

namespace cohort::chat {
namespace {

using boundaries = prometheus::Histogram::BucketBoundaries;
const boundaries short_seconds{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03,
                               0.05,   0.075, 0.1,   0.15,  0.2,  0.5,  1};
const boundaries long_seconds{0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
                              1,     2,     5,    10,   20,   60,  300};

/// A counter of somebody else's count.
void raise(prometheus::Counter& c, std::uint64_t to) {
  c.Increment(static_cast<double>(to) - c.Value());
}

}  // namespace

struct metrics::state {
  prometheus::Registry registry;

  prometheus::Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }
  prometheus::Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
  }
  prometheus::Histogram& histogram(const char* name, const char* help, const boundaries& b) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, b);
  }

  prometheus::Gauge& running = gauge("cohort_llm_running_requests", "Texts that have a slot");
  prometheus::Gauge& waiting =
      gauge("cohort_llm_waiting_requests", "Texts in line, under prefill or preempted");
  prometheus::Gauge& kv_used = gauge("cohort_llm_kv_used_bytes", "Keys and values of live texts");
  prometheus::Gauge& kv_held =
      gauge("cohort_llm_kv_held_bytes", "Memory of the decode batch, padding included");
  prometheus::Gauge& kv_budget =
      gauge("cohort_llm_kv_budget_bytes", "Most that the decode batch may hold");
  prometheus::Counter& iterations =
      counter("cohort_llm_iterations_total", "Iterations of the decode batch");
  prometheus::Counter& preemptions =
      counter("cohort_llm_preemptions_total", "Texts that gave up their slot for a while");
  prometheus::Counter& starved =
      counter("cohort_llm_bubbles_total", "Slots empty in an iteration while a text was ready");
  prometheus::Counter& prompt_tokens =
      counter("cohort_llm_prompt_tokens_total", "Tokens of accepted prompts");
  prometheus::Counter& new_tokens =
      counter("cohort_llm_generated_tokens_total", "Tokens of texts, as they come");
  prometheus::Counter& refused =
      counter("cohort_llm_refused_total", "Requests refused because the queue was full");
  prometheus::Histogram& first =
      histogram("cohort_llm_time_to_first_token_seconds", "Arrival to first token", long_seconds);
  prometheus::Histogram& gap =
      histogram("cohort_llm_inter_token_seconds", "Between two tokens of one text", short_seconds);
  prometheus::Histogram& whole =
      histogram("cohort_llm_request_seconds", "Arrival to the end of a text", long_seconds);
  prometheus::Family<prometheus::Counter>& ended = prometheus::BuildCounter()
                                                       .Name("cohort_llm_requests_total")
                                                       .Help("Texts that ended, by reason")
                                                       .Register(registry);
  prometheus::Family<prometheus::Counter>& answers = prometheus::BuildCounter()
                                                         .Name("cohort_http_responses_total")
                                                         .Help("HTTP answers by status")
                                                         .Register(registry);
};

metrics::metrics(std::uint64_t kv_budget) : state_{std::make_unique<state>()} {
  state_->kv_budget.Set(static_cast<double>(kv_budget));
}
metrics::~metrics() = default;

void metrics::prompt(std::size_t tokens) {
  state_->prompt_tokens.Increment(static_cast<double>(tokens));
}
void metrics::first_token(duration since_arrival) {
  state_->first.Observe(to_seconds(since_arrival));
  state_->new_tokens.Increment();
}
void metrics::next_token(duration gap) {
  state_->gap.Observe(to_seconds(gap));
  state_->new_tokens.Increment();
}
void metrics::ended(kv::finish_reason why, duration since_arrival) {
  state_->ended.Add({{"reason", std::string{kv::to_string(why)}}}).Increment();
  state_->whole.Observe(to_seconds(since_arrival));
}
void metrics::refused() { state_->refused.Increment(); }
void metrics::answered(int status) {
  state_->answers.Add({{"status", std::to_string(status)}}).Increment();
}
void metrics::set(const generator_counts& c) {
  state_->running.Set(static_cast<double>(c.running));
  state_->waiting.Set(static_cast<double>(c.waiting));
  state_->kv_used.Set(static_cast<double>(c.kv_used));
  state_->kv_held.Set(static_cast<double>(c.kv_held));
  raise(state_->iterations, c.iterations);
  raise(state_->preemptions, c.preemptions);
  raise(state_->starved, c.starved);
}

std::string metrics::text() const {
  return prometheus::TextSerializer{}.Serialize(state_->registry.Collect());
}

}  // namespace cohort::chat
