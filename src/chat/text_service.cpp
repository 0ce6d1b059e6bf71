// SPDX-License-Identifier: Apache-2.0
#include "text_service.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <serve/barrier.hpp>
#include <serve/log.hpp>

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
      watchdog_{o.watch, counters, *this},
      generator_{std::move(generator)} {
  expects(o.max_waiting >= 1, "max_waiting must be at least 1");
  expects(context_ >= 2,
          "the memory for keys and values is too small for a sequence of two tokens");
  report();
  generator_->calibrate([this] { return clock_.now(); });
  generator_->watch(this);
  thread_ = std::thread{[this] {
    thread_id_.store(::gettid());
    run();
  }};
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
    // Under the lock: `is_out` comes after it is so, and ends what is there by then.
    if (trouble() != device_trouble::none) {
      open_ -= more;
      return false;
    }
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
    c.arrival = j->arrival;
    {
      const std::lock_guard lock{mutex_};
      active_.emplace_back(j, &c);
      // It was on its way here when the others that wait were ended.
      if (const auto t = trouble(); t != device_trouble::none) {
        std::vector<piece> last;
        last.push_back(end_without_device(j, c, t));
        listener_.said(std::move(last));
        c.finished = kv::finish_reason::rejected;
        continue;
      }
    }
    const time_point now = clock_.now();
    std::optional<refusal> refused = refusal::draining;
    try {
      if (!broken_) refused = generator_->submit(c, now);
    } catch (...) {
      serve::log_fault("llm_server", "a request that was checked is not taken");
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

/// Ends those of its texts that could not be begun.
void text_service::end_unbegun(const std::shared_ptr<job>& j) {
  std::vector<piece> last;
  const std::lock_guard lock{mutex_};
  for (choice& c : j->choices) {
    if (std::ranges::any_of(active_, [&](const auto& a) { return a.second == &c; })) continue;
    c.stage = text_stage::ended;
    c.finished = kv::finish_reason::error;
    --open_;
    counters_.ended(*c.finished, clock_.now() - j->arrival);
    last.push_back({.of = j, .choice = c.index, .finished = c.finished});
  }
  if (!last.empty()) listener_.said(std::move(last));
}

void text_service::takes(llama::generation& g) noexcept {
  const std::lock_guard lock{mutex_};
  auto& c = static_cast<choice&>(g);
  if (c.stage == text_stage::waiting) c.stage = text_stage::sent;
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
  if (c.produced.size() == 1) {
    const std::lock_guard lock{mutex_};
    if (c.stage != text_stage::ended) c.stage = text_stage::generating;
  }
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
    pieces_.emplace_back(&c, std::move(p));
  }
  return c.stops.is_stopped();
}

/// Gives out what the turn brought, and the last pieces of what has ended.
void text_service::publish() {
  std::vector<piece> out;
  std::size_t ended = 0;
  const std::lock_guard lock{mutex_};
  for (auto& [c, p] : pieces_) {
    if (c->stage != text_stage::ended) out.push_back(std::move(p));
  }
  pieces_.clear();
  for (auto& [owner, c] : active_) {
    if (c->stage == text_stage::ended) {
      if (c->finished) owner.reset();
      continue;
    }
    const std::size_t n = c->times.size();
    c->told = c->produced.size();
    if (n >= 1 && !c->first_noted) {  // A turn may bring more than one.
      counters_.first_token(c->times[0] - owner->arrival);
      c->first_noted = true;
    }
    for (; c->noted + 1 < n; ++c->noted) {
      counters_.next_token(c->times[c->noted + 1] - c->times[c->noted]);
    }
    if (!c->finished) continue;
    piece last{.of = owner, .choice = c->index, .produced = c->told, .finished = c->finished};
    if (!c->stops.is_stopped()) {
      last.text = c->stops.finish();
      c->said += last.text.size();
    }
    last.late_for = c->late_for;
    release_tokens(*c, last, !c->stops.is_stopped());
    counters_.ended(*c->finished, clock_.now() - owner->arrival);
    out.push_back(std::move(last));
    c->stage = text_stage::ended;
    owner.reset();
    ++ended;
  }
  std::erase_if(active_, [](const auto& a) { return a.first == nullptr; });
  open_ -= ended;
  report();
  if (!out.empty()) listener_.said(std::move(out));
}

/// The last piece of one that need not, or cannot, wait for the device. Under the lock.
piece text_service::end_without_device(const std::shared_ptr<job>& owner, choice& c,
                                       device_trouble t) {
  const auto why =
      c.stage == text_stage::waiting ? kv::finish_reason::rejected : kv::finish_reason::error;
  c.stage = text_stage::ended;
  --open_;
  counters_.ended(why, clock_.now() - owner->arrival);
  return {.of = owner, .choice = c.index, .produced = c.told, .finished = why, .trouble = t};
}

/// Ends texts that are no further than this, on the watchdog's thread: the service's waits for the
/// device, or goes on with the others. Theirs are what the lock guards, and what never changes.
void text_service::end_without_device(text_stage upto, device_trouble t) noexcept {
  serve::guarded("llm_server", "sequences that wait for a device", [&] {
    std::vector<piece> last;
    const std::lock_guard lock{mutex_};
    std::erase_if(inbox_, [&](const command& c) {
      if (c.is_cancel) return false;
      for (choice& each : c.what->choices) last.push_back(end_without_device(c.what, each, t));
      return true;
    });
    std::size_t left = 0;
    for (const auto& [owner, c] : active_) {
      if (c->stage <= upto) {
        last.push_back(end_without_device(owner, *c, t));
        has_ended_some_ = true;
      }
      left += c->stage == text_stage::ended ? 0U : 1U;
    }
    counters_.waiting.set(static_cast<double>(left - std::min(left, live_)));
    if (!last.empty()) listener_.said(std::move(last));
  });
  wake_.notify_one();
}

/// Whose last piece is out though the generator has them: they have what they wait for no more.
void text_service::cancel_ended() {
  for (const auto& [owner, c] : active_) {
    const bool has_ended = [&, one = c] {
      const std::lock_guard lock{mutex_};
      return one->stage == text_stage::ended;
    }();
    if (has_ended && !c->finished && !broken_) generator_->cancel(*c);
  }
}

/// Under the lock.
void text_service::report() {
  const auto& state = generator_->state();
  const kv::decode_batch& batch = state.batch();
  live_ = batch.live();
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
  bool has_to_cancel = false;
  for (;;) {
    {
      std::unique_lock lock{mutex_};
      wake_.wait(lock, [&] { return stopping_ || busy || !inbox_.empty() || has_ended_some_; });
      if (stopping_) return;
      taken.swap(inbox_);
      has_to_cancel = std::exchange(has_ended_some_, false);
    }
    if (has_to_cancel) cancel_ended();
    for (const command& c : taken) {
      if (!c.is_cancel) {
        const auto begin_it = [&] { begin(c.what); };
        if (serve::guarded("llm_server", "a request is not begun", begin_it)) continue;
        serve::guarded("llm_server", "a request is lost", [&] { end_unbegun(c.what); });
        continue;
      }
      serve::guarded("llm_server", "a request is not cancelled", [&] {
        for (choice& each : c.what->choices) {
          if (!each.finished && !broken_) generator_->cancel(each);
        }
      });
    }
    taken.clear();
    busy = false;
    if (!broken_) {
      try {
        busy = generator_->turn([this] { return clock_.now(); });
      } catch (const std::exception& e) {
        serve::log_line(serve::severity::error, e.what());
        fail_all();
      }
    }
    serve::guarded("llm_server", "pieces of texts are lost", [this] { publish(); });
  }
}

}  // namespace cohort::chat
