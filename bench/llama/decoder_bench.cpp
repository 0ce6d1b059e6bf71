// SPDX-License-Identifier: Apache-2.0
// Question: how near does one thread come to the memory's bandwidth, in attention and in a whole
// decode iteration? The bound of both is bytes over what bm_stream reads a second.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <llama/kernels.hpp>
#include <llama/llama.hpp>

namespace cohort::llama {
namespace {

constexpr std::size_t far = std::size_t{192} << 20U;  // Bytes: far more than any cache here.

/// A sum of more floats than caches hold. Sixteen lanes, so that additions do not bound it.
void bm_stream(benchmark::State& state) {
  const std::vector<float> data(far / sizeof(float), 1.0F);
  for ([[maybe_unused]] auto _ : state) {
    std::uint64_t sums[16] = {};
    const auto* words = reinterpret_cast<const std::uint64_t*>(data.data());
    for (std::size_t i = 0; i + 16 <= far / 8; i += 16) {
      for (std::size_t k = 0; k < 16; ++k) sums[k] ^= words[i + k];
    }
    benchmark::DoNotOptimize(sums);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(far));
}
BENCHMARK(bm_stream)->Unit(benchmark::kMillisecond);

/// Attention of one token over long sequences: heads of 64, `group` query heads for each.
void bm_attend(benchmark::State& state) {
  constexpr std::size_t head_size = 64;
  const auto columns = static_cast<std::uint32_t>(state.range(0));
  const auto group = static_cast<std::size_t>(state.range(1));
  const std::size_t heads = far / (2 * columns * head_size * sizeof(float));
  std::vector<float> memory(heads * 2 * columns * head_size, 0.01F);
  const std::vector<float> q(group * head_size, 0.5F);
  std::vector<float> scores(group * columns);
  std::vector<float> out(group * head_size);
  // A ring that wraps in its middle.
  const kv::column_run runs[] = {{columns / 2, columns - columns / 2}, {0, columns / 2}};
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t h = 0; h < heads; ++h) {
      const float* k = memory.data() + h * 2 * columns * head_size;
      attend(q.data(), k, k + columns * head_size, runs, columns, group, head_size, scores.data(),
             out.data());
      benchmark::DoNotOptimize(out.data());
    }
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(memory.size() * sizeof(float)));
}
BENCHMARK(bm_attend)
    ->ArgNames({"columns", "group"})
    ->Args({512, 1})
    ->Args({2048, 1})
    ->Args({512, 3})
    ->Args({2048, 3})
    ->Args({2048, 4})
    ->Unit(benchmark::kMillisecond);

/// A decode iteration of the medium model over sequences of 512 columns.
void bm_iteration(benchmark::State& state) {
  const auto rows = static_cast<std::size_t>(state.range(0));
  constexpr std::uint32_t columns = 512;
  const llama model{random_weights(named_config("medium"), 1)};
  const llama_config& c = model.config();
  std::vector<float> memory(rows * columns * c.column_bytes() / sizeof(float), 0.01F);
  std::vector<float> logits(rows * c.vocabulary);
  const kv::column_run runs[] = {{0, columns}};
  std::vector<token_row> batch;
  for (std::size_t i = 0; i < rows; ++i) {
    float* at = memory.data() + i * columns * c.column_bytes() / sizeof(float);
    batch.push_back({.token = static_cast<kv::token_id>(i),
                     .position = columns - 1,
                     .kv = packed_kv(c, at, columns),
                     .write = columns - 1,
                     .runs = runs,
                     .logits = logits.data() + i * c.vocabulary});
  }
  llama::scratch scratch;
  for ([[maybe_unused]] auto _ : state) {
    model.forward(batch, scratch);
    benchmark::DoNotOptimize(logits.data());
  }
  state.SetBytesProcessed(
      state.iterations() *
      static_cast<std::int64_t>(c.parameters() * sizeof(float) + memory.size() * sizeof(float)));
}
BENCHMARK(bm_iteration)->ArgName("rows")->Arg(1)->Arg(4)->Arg(8)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cohort::llama
