// SPDX-License-Identifier: Apache-2.0
// Questions: which share of the memory's bandwidth does decoding at Llama-7B's shape reach at batch
// 1 to 16? How fast is prefill, and what does it do to the time between tokens? What does the
// request set of the Baton paper take, eight slots, all requests there at the start?
// Usage: llama.cuda_bench [OUT.json] [--quick] [--decode] [--cublas] [--no-early]: decoding alone;
// with products by cuBLAS; no kernel begins before the one before has ended. Weights are drawn. OUT
// also holds the requests, for `scripts/gpu-llm` to run them by PyTorch.
#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/device.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include <llama/basic_generator.hpp>
#include <llama/compare.hpp>
#include <llama/cuda/backend.hpp>
#include <llama/cuda/cuda_device.hpp>

#include "bench_report.hpp"

namespace {

using namespace cohort;
using namespace cohort::llama;
using clock_type = std::chrono::steady_clock;
using gpu = device::cuda_device;
using backend = device::device_backend<gpu>;
using weights_type = device::device_weights<gpu>;
constexpr runtime::data_type bf16 = runtime::data_type::bf16;

time_point now() {
  return time_point{std::chrono::duration_cast<duration>(clock_type::now().time_since_epoch())};
}
double seconds_since(clock_type::time_point t) {
  return std::chrono::duration<double>(clock_type::now() - t).count();
}
double quantile(std::vector<double> x, double q) {
  if (x.empty()) return 0;
  std::ranges::sort(x);
  return x[std::min(x.size() - 1, static_cast<std::size_t>(q * static_cast<double>(x.size())))];
}

llama_config shape_7b(std::size_t layers) {
  llama_config c;
  c.layers = layers;
  c.hidden = 4096;
  c.heads = 32;
  c.kv_heads = 32;
  c.head_size = 128;
  c.ffn = 11008;
  c.vocabulary = 32000;
  c.max_positions = 4096;
  c.end_tokens.clear();
  return c;
}

/// Bytes a second of a copy within the device, read and written.
double copy_bandwidth(gpu& d) {
  constexpr std::size_t bytes = std::size_t{512} << 20U;
  auto& e = d.executor();
  auto s = e.make_stream();
  auto a = e.allocate(bytes);
  auto b = e.allocate(bytes);
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    device::settle(e, s);
    const auto start = clock_type::now();
    for (int j = 0; j < 8; ++j) {
      e.copy(s, {.destination = b.data(), .source = a.data(), .row_bytes = bytes});
    }
    device::settle(e, s);
    best = std::max(best, 2.0 * 8 * bytes / seconds_since(start));
  }
  return best;
}

struct machine {
  runtime::cuda::device_description description;
  bool quick = false;
  bool decode_only = false;
  bool own_products = true;
};

/// A batch whose rows have `columns` columns of real keys and values.
void fill(backend& b, kv::decode_batch& batch, std::uint32_t slots, std::uint32_t columns) {
  const std::vector<kv::token_id> text(columns, 7);
  kv::copy_plan plan;
  for (std::uint32_t i = 0; i < slots; ++i) {
    const prefill_piece r = whole_prompt(text, b.allocate(columns));
    b.start_prefill({&r, 1});
    b.wait_for_prefill();
    expects(b.prefill() == prefill_state::done, "cuda_bench: a prefill failed");
    kv::prepared who{.id = request_id{i}, .storage = r.storage, .prompt = columns};
    who.length = columns;
    who.produced = 1;
    who.pending = b.first(0).best->token;
    b.end_prefill();
    batch.insert(i, who, plan);
    b.execute(plan);
    plan.clear();
    b.release(r.storage);
  }
}

void decode(bench::report& out, gpu& d, const weights_type& w, const machine& m, double copied) {
  const double peak = m.description.bandwidth_gb_s * 1e9;
  for (const std::uint32_t slots :
       m.quick ? std::vector<std::uint32_t>{1, 4} : std::vector<std::uint32_t>{1, 2, 4, 8, 16}) {
    for (const bool records : {true, false}) {
      if (!records && slots != 8) continue;
      const std::uint32_t columns = m.quick ? 100 : 500;
      const int steps = m.quick ? 5 : 100;
      const std::uint64_t column_bytes = w.config().column_bytes() / 2;
      const generator_options o{.slots = slots,
                                .columns = 1024,
                                .kv_bytes = 3ULL * slots * 1024 * column_bytes,
                                .staging_bytes = 4ULL * 1024 * column_bytes,
                                .prefill = {.max_rows = 1, .max_positions = 1024}};
      backend b{
          d, w, o, {.prefill_chunk = 512, .own_products = m.own_products, .records = records}};
      kv::decode_batch batch{{.slots = slots, .columns = o.columns}};
      fill(b, batch, slots, columns);
      kv::copy_plan plan;
      std::vector<double> seconds;
      double bytes = 0;
      for (int i = 0; i < steps; ++i) {
        const auto start = clock_type::now();
        batch.step(plan);
        b.execute(plan);
        plan.clear();
        expects(b.iterate(batch, false), "cuda_bench: an iteration failed");
        for (std::uint32_t s = 0; s < slots; ++s) batch.produce(s, b.of_slot(s).best->token);
        if (i < steps / 5) continue;  // Warm-up, and recording.
        seconds.push_back(seconds_since(start));
        bytes += static_cast<double>(w.bytes_read()) +
                 static_cast<double>(batch.length() * slots * column_bytes);
      }
      bytes /= static_cast<double>(seconds.size());
      const double middle = quantile(seconds, 0.5);
      const std::string name =
          fmt::format("decode, batch {}{}", slots, records ? "" : ", not recorded");
      out.line(name, middle * 1e3, "ms");
      out.line(name, slots / middle, "tokens/s");
      if (peak > 0) {
        const double share = bytes / middle / peak;
        const bool counts = records && !m.quick;
        if (counts) {
          // Above 1, the device did not do the work.
          out.bar(name + ", of the nominal bandwidth", share, "", "0.75 to 1",
                  share >= 0.75 && share <= 1);
        } else {
          out.line(name + ", of the nominal bandwidth", share, "");
        }
      }
      out.line(name + ", of a copy's bandwidth", bytes / middle / copied, "");
    }
  }
}

void prefill(bench::report& out, gpu& d, const weights_type& w, const machine& m) {
  const std::uint32_t longest = m.quick ? 200 : 2000;
  const std::uint64_t column_bytes = w.config().column_bytes() / 2;
  const generator_options o{.slots = 1,
                            .columns = 64,
                            .kv_bytes = 4096 * column_bytes,
                            .staging_bytes = 3ULL * longest * column_bytes,
                            .prefill = {.max_rows = 1, .max_positions = longest}};
  for (const std::uint32_t chunk : {256U, 512U, 1024U}) {
    backend b{d, w, o, {.prefill_chunk = chunk}};
    for (const std::uint32_t tokens : {longest / 4, longest}) {
      const std::vector<kv::token_id> text(tokens, 7);
      double best = 0;
      for (int i = 0; i < 4; ++i) {
        const prefill_piece r = whole_prompt(text, b.allocate(tokens));
        const auto start = clock_type::now();
        b.start_prefill({&r, 1});
        b.wait_for_prefill();
        expects(b.prefill() == prefill_state::done, "cuda_bench: a prefill failed");
        best = std::max(best, tokens / seconds_since(start));
        b.end_prefill();
        b.release(r.storage);
      }
      out.line(fmt::format("prefill of {} tokens by {}", tokens, chunk), best, "tokens/s");
    }
  }
}

/// The 120 requests, greedy, nothing stops before its length.
void serve(bench::report& out, gpu& d, const weights_type& w, const machine& m) {
  const double scale = m.quick ? 0.005 : 0.05;
  const auto requests = paper_requests(1, scale, w.config(), 1);
  const std::uint64_t column_bytes = w.config().column_bytes() / 2;
  const generator_options o{.slots = 8,
                            .columns = 64,
                            .kv_bytes = 8ULL * 1024 * column_bytes * 3,
                            .staging_bytes = 64ULL * 512 * column_bytes,
                            .max_prepared = 16,
                            .prefill_chunk = 512,
                            .prefix_bytes = 0,  // The second round is to compute its prompts too.
                            .prefill = {.max_rows = 8, .max_waste = 0.5, .max_positions = 2048}};
  for (const unsigned share : {100U, 50U}) {
    if (share < 100 && m.description.partition_steps < 4) continue;
    backend b{d, w, o, {.prefill_chunk = 512, .prefill_share = device_share{share}}};
    basic_generator g{b, o};
    double best = 0;
    std::vector<double> gaps;
    for (int round = 0; round < 2; ++round) {  // The first loads kernels and records shapes.
      std::deque<generation> all;
      for (const timed_request& r : requests) {
        generation& q = all.emplace_back();
        q.id = request_id{all.size()};
        q.text = r.prompt;
        q.max_new = r.output;
      }
      const auto start = clock_type::now();
      for (generation& q : all) expects(!g.submit(q), "cuda_bench: a request was refused");
      while (g.turn(now)) {
      }
      const double seconds = seconds_since(start);
      std::uint64_t tokens = 0;
      gaps.clear();
      for (const generation& q : all) {
        expects(q.produced.size() == q.max_new, "cuda_bench: a request lacks tokens");
        tokens += q.produced.size();
        for (std::size_t i = 2; i < q.times.size(); ++i) {
          gaps.push_back(static_cast<double>((q.times[i] - q.times[i - 1]).count()) / 1e6);
        }
      }
      best = static_cast<double>(tokens) / seconds;
    }
    const std::string name =
        fmt::format("120 requests, 8 slots{}", share < 100 ? ", prompts on half the device" : "");
    out.line(name, best, "tokens/s");
    out.line(name + ", gap between tokens, median", quantile(gaps, 0.5), "ms");
    out.line(name + ", gap between tokens, p99", quantile(gaps, 0.99), "ms");
    if (share == 100) out.note("requests_tokens_per_s", best);
  }
  nlohmann::json list = nlohmann::json::array();
  for (const timed_request& r : requests) {
    list.push_back({{"prompt", r.prompt}, {"output", r.output}});
  }
  out.note("requests", std::move(list));
  const llama_config& c = w.config();
  out.note("config", {{"layers", c.layers},
                      {"hidden", c.hidden},
                      {"heads", c.heads},
                      {"kv_heads", c.kv_heads},
                      {"head_size", c.head_size},
                      {"ffn", c.ffn},
                      {"vocabulary", c.vocabulary},
                      {"max_positions", c.max_positions}});
}

int run(const std::string& path, machine m) {
  const std::string reason = runtime::cuda::why_no_blas();
  if (!reason.empty()) {
    fmt::print("skipped: {}\n", reason);
    return 77;
  }
  // Fewer layers where 7 B do not fit, and it says so.
  std::size_t layers = m.quick ? 2 : 32;
  const auto needed = [&] {
    return weights_type::bytes_needed(shape_7b(layers), bf16) +
           (std::size_t{26} << 30U) / 32 * layers + (std::size_t{3} << 30U);
  };
  while (layers > 1 && needed() > m.description.memory_bytes / 10 * 9) --layers;
  const llama_config c = shape_7b(layers);
  bench::report out{path, m.description.name};
  fmt::print("{}, {:.0f} GB/s nominal; Llama-7B's shape, {} of 32 layers, bf16\n",
             m.description.name, m.description.bandwidth_gb_s, layers);
  gpu d{{.pool_bytes = needed(), .poll_interval = {}}};
  const double copied = copy_bandwidth(d);
  out.line("copy within the device, read and written", copied / 1e9, "GB/s");
  const weights_type w = weights_type::drawn(d, c, bf16, 1);
  out.line("weights read by an iteration", static_cast<double>(w.bytes_read()) / 1e9, "GB");
  decode(out, d, w, m, copied);
  if (m.decode_only) return 0;
  prefill(out, d, w, m);
  serve(out, d, w, m);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  machine m;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view{argv[i]} == "--quick") {
      m.quick = true;
    } else if (std::string_view{argv[i]} == "--decode") {
      m.decode_only = true;
    } else if (std::string_view{argv[i]} == "--cublas") {
      m.own_products = false;
    } else if (std::string_view{argv[i]} == "--no-early") {
      device::launch_early(false);
    } else {
      path = argv[i];
    }
  }
  const runtime::cuda::inventory found = runtime::cuda::find_devices();
  if (found.devices.empty()) {
    fmt::print("skipped: {}\n", found.reason);
    return 77;
  }
  m.description = found.devices.front();
  try {
    return run(path, m);
  } catch (const std::exception& e) {
    fmt::print("FAILED: {}\n", e.what());
    return 1;
  }
}
