// SPDX-License-Identifier: Apache-2.0
#include "text_service.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "memory.hpp"

namespace cohort::chat {
text_service::text_service(std::unique_ptr<llama::text_generator> generator,
                           const llama::llama_config& config, const llama::tokenizer& words,
                           const service_options& o, piece_listener& listener,
                           chat_metrics& counters)
    : words_{words},
      listener_{listener},
      counters_{counters},
      context_{longest_text(config, o.generator, generator->column_bytes()).tokens},
      capacity_{o.capacity()},
      watchdog_{o.health, counters},
      generator_{std::move(generator)} {
  expects(o.max_waiting >= 1, "max_waiting must be at least 1");
  expects(context_ >= 2, "the memory for keys and values holds no text of two tokens");
  report();
  generator_->calibrate([this] { return clock_.now(); });
  generator_->watch(&watchdog_);
  thread_ = std::thread{[this] { run(); }};
}

text_service::~text_service() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
  generator_.reset();  // Before the choices that it may still read.
}

bool text_service::submit(const std::shared_ptr<job>& j) {
  const std::size_t more = j->choices.size();
  std::size_t now = open_.load();
  do {
    if (now + more > capacity_ || broken_) return false;
  } while (!open_.compare_exchange_weak(now, now + more));
  {
    const std::lock_guard lock{mutex_};
    inbox_.push_back({j, false});
  }
  wake_.notify_one();
  return true;
}

void text_service::cancel(const std::shared_ptr<job>& j) {
  {
    const std::lock_guard lock{mutex_};
    inbox_.push_back({j, true});
  }
  wake_.notify_one();
}

void text_service::begin(const std::shared_ptr<job>& j) {
  for (choice& c : j->choices) {
    c.id = request_id{++numbers_};
    c.on_token = [this](llama::generation& g, const llama::sampled& s) {
      return hear(static_cast<choice&>(g), s);
    };
    c.reader = llama::token_reader{words_, c.text};
    active_.emplace_back(j, &c);
    c.arrival = j->arrival;
    const time_point now = clock_.now();
    std::optional<refusal> refused = refusal::draining;
    try {
      if (!broken_) refused = generator_->submit(c, now);
    } catch (const config_error& e) {
      fmt::print(stderr, "llm_server: a request that was checked is not valid: {}\n", e.what());
    }
    if (!refused) {
      counters_.prompt(c.text.size());
      continue;
    }
    const bool is_late = refused == refusal::deadline_infeasible;
    if (is_late) c.late_for = c.retry_from == never ? unbounded : c.retry_from - now;
    c.finished = is_late || refused == refusal::queue_full ? kv::finish_reason::rejected
                                                           : kv::finish_reason::error;
  }
}

/// Moves on the tokens whose text is out.
void text_service::release_tokens(choice& c, piece& p, bool all) {
  while (!c.held.empty()) {
    const shown_token& t = c.held.front();
    const bool is_out = t.offset < c.said || (t.offset == c.said && t.is_empty);
    if (!is_out && !all) return;
    p.tokens.push_back(std::move(c.held.front()));
    c.held.pop_front();
  }
}

/// A token of the text. @returns Whether a stop string ends it.
bool text_service::hear(choice& c, const llama::sampled& s) {
  const std::string_view bytes = c.reader.next(s.chosen.token);
  if (c.shows_tokens) c.held.push_back({s, c.bytes, c.characters, bytes.empty()});
  c.bytes += bytes.size();
  c.characters += static_cast<std::uint64_t>(std::ranges::count_if(bytes, [](char b) {
    return (static_cast<unsigned char>(b) & 0xC0U) != 0x80U;  // Begins a character.
  }));
  piece p{.choice = c.index, .text = c.stops.push(bytes), .produced = c.produced.size()};
  c.said += p.text.size();
  release_tokens(c, p, false);
  // The first also where its text must wait, as a part of a character, for the next token.
  if (!p.text.empty() || !p.tokens.empty() || c.produced.size() == 1) {
    const auto at = std::ranges::find_if(active_, [&](const auto& a) { return a.second == &c; });
    p.of = at->first;
    pieces_.push_back(std::move(p));
  }
  return c.stops.is_stopped();
}

/// Gives out what the turn brought, and the last pieces of what has ended.
void text_service::publish() {
  std::size_t ended = 0;
  for (auto& [owner, c] : active_) {
    const std::size_t n = c->times.size();
    if (n >= 1 && !c->first_noted) {  // A turn may bring more than one.
      counters_.first_token(c->times[0] - owner->arrival);
      c->first_noted = true;
    }
    for (; c->noted + 1 < n; ++c->noted) {
      counters_.next_token(c->times[c->noted + 1] - c->times[c->noted]);
    }
    if (!c->finished) continue;
    piece last{
        .of = owner, .choice = c->index, .produced = c->produced.size(), .finished = c->finished};
    if (!c->stops.is_stopped()) {
      last.text = c->stops.finish();
      c->said += last.text.size();
    }
    last.late_for = c->late_for;
    release_tokens(*c, last, !c->stops.is_stopped());
    counters_.ended(*c->finished, clock_.now() - owner->arrival);
    pieces_.push_back(std::move(last));
    owner.reset();
    ++ended;
  }
  std::erase_if(active_, [](const auto& a) { return a.first == nullptr; });
  open_ -= ended;
  report();
  if (!pieces_.empty()) listener_.said(std::exchange(pieces_, {}));
}

void text_service::report() {
  const auto& state = generator_->state();
  const kv::decode_batch& batch = state.batch();
  std::uint64_t columns = 0;
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    if (batch[i].live) columns += batch[i].who.length;
  }
  const std::uint64_t column = generator_->column_bytes();
  counters_.set({.running = batch.live(),
                 .waiting = active_.size() - std::min<std::size_t>(active_.size(), batch.live()),
                 .kv_used = columns * column,
                 .kv_held = batch.size() * batch.window().capacity() * column,
                 .iterations = state.iterations(),
                 .preemptions = state.preemptions(),
                 .starved = state.starved()});
}

/// The generator threw: nothing that it has can be trusted.
void text_service::fail_all() {
  broken_ = true;
  generator_->watch(nullptr);  // Nothing more is sent, and nobody waits for what was.
  for (const auto work : {llama::device_work::iteration, llama::device_work::prefill}) {
    watchdog_.returned(work, clock_.now());
  }
  for (auto& [owner, c] : active_) {
    if (!c->finished) c->finished = kv::finish_reason::error;
  }
}

void text_service::run() {
  std::vector<command> taken;
  bool busy = false;
  for (;;) {
    {
      std::unique_lock lock{mutex_};
      wake_.wait(lock, [&] { return stopping_ || busy || !inbox_.empty(); });
      if (stopping_) return;
      taken.swap(inbox_);
    }
    for (const command& c : taken) {
      if (!c.is_cancel) {
        begin(c.what);
        continue;
      }
      for (choice& each : c.what->choices) {
        if (!each.finished && !broken_) generator_->cancel(each);
      }
    }
    taken.clear();
    busy = false;
    if (!broken_) {
      try {
        busy = generator_->turn([this] { return clock_.now(); });
      } catch (const std::exception& e) {
        fmt::print(stderr, "llm_server: {}\n", e.what());
        fail_all();
      }
    }
    publish();
  }
}

}  // namespace cohort::chat
