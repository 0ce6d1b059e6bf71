// SPDX-License-Identifier: Apache-2.0
// Question: what does the bookkeeping of a decode iteration cost beside its milliseconds of
// computing?
#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/kv/decode_scheduler.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <deque>

namespace cohort {
namespace {

kv::prepared fresh(std::uint32_t length) {
  return {.prompt = length, .length = length, .produced = 1};
}

/// One column for all rows, and a token for each.
void bm_step(benchmark::State& state) {
  const auto slots = static_cast<std::uint32_t>(state.range(0));
  kv::decode_batch batch{{.slots = slots, .columns = 4096}};
  kv::copy_plan plan;
  const auto refill = [&] {
    for (std::uint32_t i = 0; i < slots; ++i) {
      if (batch[i].live) batch.remove(i);
      batch.insert(i, fresh(100 + i), plan);
    }
    plan.clear();
  };
  refill();
  std::uint32_t steps = 0;
  for ([[maybe_unused]] auto _ : state) {
    if (++steps == 3000) {
      steps = 0;
      refill();
    }
    benchmark::DoNotOptimize(batch.step(plan));
    for (std::uint32_t i = 0; i < slots; ++i) batch.produce(i, 1);
  }
  state.SetItemsProcessed(state.iterations() * slots);
}
BENCHMARK(bm_step)->ArgName("slots")->Arg(8)->Arg(64)->Arg(256);

/// A row leaves and another enters over a part of its columns.
void bm_replace(benchmark::State& state) {
  const auto slots = static_cast<std::uint32_t>(state.range(0));
  kv::decode_batch batch{{.slots = slots, .columns = 4096}};
  kv::copy_plan plan;
  for (std::uint32_t i = 0; i < slots; ++i) batch.insert(i, fresh(100 + i), plan);
  std::uint32_t slot = 0;
  for ([[maybe_unused]] auto _ : state) {
    batch.remove(slot);
    plan.clear();
    batch.insert(slot, fresh(100 + slot), plan);
    benchmark::DoNotOptimize(plan.copies().data());
    slot = slot + 1 == slots ? 0 : slot + 1;
  }
}
BENCHMARK(bm_replace)->ArgName("slots")->Arg(8)->Arg(64)->Arg(256);

struct no_memory {
  void execute(const kv::copy_plan&) {}
  std::uint64_t allocate(kv::sequence&, std::uint32_t) { return 0; }
  void release(std::uint64_t) {}
  void finish(kv::sequence&, kv::finish_reason) {}
};

/// The whole of a boundary: submit, prefill, begin, tokens; sequences of 20 tokens.
void bm_scheduler_iteration(benchmark::State& state) {
  const auto slots = static_cast<std::uint32_t>(state.range(0));
  kv::decode_scheduler<> scheduler{
      {.batch = {.slots = slots, .columns = 4096}, .max_slots = slots}};
  no_memory sink;
  std::deque<kv::sequence> all(slots + 16);
  for (kv::sequence& s : all) {
    s.prompt = 100;
    s.max_new = 20;
  }
  for ([[maybe_unused]] auto _ : state) {
    for (kv::sequence& s : all) {
      if (s.state == kv::sequence_state::idle) scheduler.submit(s);
    }
    for (kv::sequence* s : scheduler.next_prefill()) scheduler.on_prefilled(*s, 0, 1, false, sink);
    if (!scheduler.begin(time_point{}, sink)) continue;
    for (std::uint32_t i = 0; i < slots; ++i) {
      if (scheduler.batch()[i].live) scheduler.on_token(i, 1, false, sink);
    }
  }
}
BENCHMARK(bm_scheduler_iteration)->ArgName("slots")->Arg(8)->Arg(64)->Arg(256);

}  // namespace
}  // namespace cohort
