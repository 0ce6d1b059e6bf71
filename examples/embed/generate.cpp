// SPDX-License-Identifier: Apache-2.0
// Text generation in your own loop: sequences enter and leave a running decode batch. The decoder
// is a stand-in: a column of "keys and values" is one token, and the next token depends on all
// columns of its sequence. A real decoder computes its layers at the two places marked below.
#include <cohort/kv/decode_scheduler.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <vector>

using namespace cohort;
using columns = std::vector<kv::token_id>;
constexpr kv::token_id stop = 0;

struct text : kv::sequence {  // Yours: it must live until its final event.
  columns prompt_tokens, output;
  bool has_ended = false;
};

kv::token_id next_token(const columns& read) {
  std::uint32_t h = 1;
  for (const kv::token_id t : read) h = h * 31 + static_cast<std::uint32_t>(t);
  return static_cast<kv::token_id>((h >> 8U) % 20);  // One token in 20 ends the text.
}

struct my_memory {  // The sink: moves columns when slots are reassigned, and receives final events.
  void execute(const kv::copy_plan& plan) {
    std::vector<columns> before;
    if (plan.rows() > slots.size()) slots.resize(plan.rows(), columns(width));
    if (plan.capacity() > 0) {
      width = plan.capacity();
      before.assign(slots.size(), columns(width));
      before.swap(slots);
    }
    for (const kv::column_copy& c : plan.copies()) {
      const columns& source = c.kind == kv::copy_kind::enter    ? packed[c.storage]
                              : c.kind == kv::copy_kind::resize ? before[c.from_slot]
                                                                : slots[c.from_slot];
      const columns moved(source.begin() + c.from_column, source.begin() + c.from_column + c.count);
      columns& target = c.kind == kv::copy_kind::leave ? packed[c.storage] : slots[c.to_slot];
      std::ranges::copy(moved, target.begin() + c.to_column);
    }
    if (plan.rows() > 0) slots.resize(plan.rows());
  }
  std::uint64_t allocate(kv::sequence& /*of*/, std::uint32_t count) {
    packed.emplace_back(count);
    return packed.size() - 1;
  }
  void release(std::uint64_t storage) { packed[storage] = {}; }
  void finish(kv::sequence& s, kv::finish_reason /*why*/) {
    static_cast<text&>(s).has_ended = true;
  }

  std::uint32_t width = 16;  // Columns per slot; there are two slots at first.
  std::vector<columns> slots{2, columns(width)}, packed;
};

int main() {
  my_memory memory;
  kv::decode_scheduler<> scheduler{
      {.batch = {.slots = 2, .columns = memory.width}, .max_slots = 4}};
  std::deque<text> texts(40);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    text& t = texts[i];
    for (std::size_t k = 0; k <= i % 7; ++k)
      t.prompt_tokens.push_back(static_cast<kv::token_id>(i + k + 1));
    t.prompt = static_cast<std::uint32_t>(t.prompt_tokens.size());
    t.max_new = 30;
    if (scheduler.submit(t)) std::puts("refused");
  }
  while (!scheduler.empty()) {
    // Prefill the prompts. A server does this concurrently with the batch, on a separate stream.
    for (kv::sequence* s : scheduler.next_prefill()) {
      text& t = static_cast<text&>(*s);
      const std::uint64_t storage = memory.allocate(t, t.prompt);
      memory.packed[storage] = t.prompt_tokens;  // Compute here,
      const kv::token_id token = t.output.emplace_back(next_token(t.prompt_tokens));
      scheduler.on_prefilled(t, storage, token, token == stop, memory);  // then report the result.
    }
    // One iteration: each live slot reads its own columns and writes the appended one.
    if (!scheduler.begin(time_point{}, memory)) continue;
    const kv::decode_batch& batch = scheduler.batch();
    for (std::uint32_t slot = 0; slot < batch.size(); ++slot) {
      if (!batch[slot].live) continue;
      columns& row = memory.slots[slot];
      row[batch.window().physical(batch.window().end() - 1)] = batch[slot].who.pending;
      columns own;  // Compute here, too.
      batch.for_each_run(slot, [&](kv::column_run r) {
        own.insert(own.end(), row.begin() + r.first, row.begin() + r.first + r.count);
      });
      text& t = static_cast<text&>(scheduler.in_slot(slot));
      const kv::token_id token = t.output.emplace_back(next_token(own));
      scheduler.on_token(slot, token, token == stop, memory);
    }
  }
  // No text may depend on the other texts in its batch.
  const auto right = std::ranges::count_if(texts, [](const text& t) {
    columns read = t.prompt_tokens, alone;
    do {
      read.push_back(alone.emplace_back(next_token(read)));
    } while (read.back() != stop && alone.size() < t.max_new);
    return t.has_ended && t.output == alone;
  });
  std::printf("%td of %zu texts as if alone, in %llu iterations\n", right, texts.size(),
              static_cast<unsigned long long>(scheduler.iterations()));
  return right == std::ssize(texts) ? 0 : 1;
}
