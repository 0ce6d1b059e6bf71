// SPDX-License-Identifier: Apache-2.0
// Questions: what does the CUDA executor cost over bare CUDA and cuBLAS, side by side in one run?
// How long does a partition switch take, how well do streams overlap, and how fast are the models?
// Usage: runtime.cuda_bench [OUT.json] [--quick]. Prints a readable summary; writes JSON to OUT.
#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/error.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <cublas_v2.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <semaphore>
#include <string>
#include <string_view>
#include <vector>

#include <models/registry.hpp>
#include <models/timed_model.hpp>
#include <runtime/cuda/kernels.hpp>

namespace {

using namespace cohort;
using namespace cohort::runtime;
using clock_type = std::chrono::steady_clock;

bool quick = false;
std::string device_name;
std::string out_path;
std::string json;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}
/// After every section: what was measured must not be lost with what comes later.
void write_json() {
  if (out_path.empty()) return;
  std::ofstream{out_path} << fmt::format("{{\"device\": \"{}\", \"results\": [\n{}\n]}}\n",
                                         escaped(device_name), json);
}

double median(std::vector<double> x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::ranges::nth_element(x, middle);
  return *middle;
}
double since_us(clock_type::time_point t) {
  return std::chrono::duration<double, std::micro>(clock_type::now() - t).count();
}

/// A line of the summary and a member of the JSON document. `bar` is empty if there is none.
void report(const std::string& name, double value, const std::string& unit,
            const std::string& bar = "", bool met = true) {
  fmt::print("{:<58} {:>12.4f} {:<10} {}\n", name, value, unit,
             bar.empty() ? "" : fmt::format("bar {}: {}", bar, met ? "met" : "MISSED"));
  std::fflush(stdout);
  json += fmt::format("{}  {{\"name\": \"{}\", \"value\": {}, \"unit\": \"{}\"{}}}",
                      json.empty() ? "" : ",\n", escaped(name),
                      std::isfinite(value) ? fmt::to_string(value) : "null", unit,
                      bar.empty() ? "" : fmt::format(", \"bar\": \"{}\", \"met\": {}", bar, met));
}

void settle(cuda_executor& e, cuda_executor::stream& s) {
  struct finished : completion {
    std::binary_semaphore done{0};
    bool failed = false;
  } f;
  f.invoke = [](completion& c, bool failed) noexcept {
    static_cast<finished&>(c).failed = failed;
    static_cast<finished&>(c).done.release();
  };
  e.notify(s, f);
  f.done.acquire();
  expects(!f.failed, "cuda_bench: work failed on the device");
}

void hand_over(cuda_executor& e) {
  std::vector<cuda_executor::stream> streams;
  std::vector<cuda_executor::event> events;
  for (int i = 0; i < 2; ++i) {
    streams.push_back(e.make_stream());
    events.push_back(e.make_event());
  }
  constexpr int steps = 400;  // Less than the device's queue holds: the host must not wait for it.
  const auto bare = [&] {
    for (std::size_t i = 0; i < steps; ++i) {
      const cudaStream_t s = streams[i % 2].view().native();
      const cudaStream_t next = streams[(i + 1) % 2].view().native();
      const cudaEvent_t v = events[i % 2].view().native();
      test_kernels::nothing(s);
      (void)cudaEventRecord(v, s);
      (void)cudaStreamWaitEvent(next, v, 0);
    }
  };
  const auto ours = [&] {
    for (std::size_t i = 0; i < steps; ++i) {
      e.launch(streams[i % 2], [](cuda::stream_view v) { test_kernels::nothing(v.native()); });
      e.record(streams[i % 2], events[i % 2]);
      e.wait(streams[(i + 1) % 2], events[i % 2]);
    }
  };
  const auto timed = [&](auto work) {
    const auto start = clock_type::now();
    work();
    const double us = since_us(start) / steps;
    for (auto& s : streams) settle(e, s);
    return us;
  };
  (void)timed(bare);
  (void)timed(ours);
  std::vector<double> with_bare;
  std::vector<double> with_ours;
  for (int i = 0; i < (quick ? 5 : 60); ++i) {
    with_bare.push_back(timed(bare));
    with_ours.push_back(timed(ours));
  }
  const double added = median(with_ours) - median(with_bare);
  report("hand-over (record + wait + launch), bare CUDA", median(with_bare), "us");
  report("hand-over, executor", median(with_ours), "us");
  report("hand-over, added by the executor", added, "us", "at most 1.5 us", added <= 1.5);
}

void replay(cuda_executor& e) {
  auto s = e.make_stream();
  e.launch(s, [](cuda::stream_view v) { test_kernels::nothing(v.native()); });
  settle(e, s);
  const cuda::graph g = e.capture(s, [&] {
    for (int i = 0; i < 20; ++i) {
      e.launch(s, [](cuda::stream_view v) { test_kernels::nothing(v.native()); });
    }
  });
  constexpr int steps = 100;
  const auto timed = [&](auto work) {
    const auto start = clock_type::now();
    for (int i = 0; i < steps; ++i) work();
    const double us = since_us(start) / steps;
    settle(e, s);
    return us;
  };
  const auto bare = [&] { (void)cudaGraphLaunch(g.native(), s.view().native()); };
  const auto ours = [&] { e.replay(s, g); };
  (void)timed(bare);
  (void)timed(ours);
  std::vector<double> with_bare;
  std::vector<double> with_ours;
  for (int i = 0; i < (quick ? 5 : 60); ++i) {
    with_bare.push_back(timed(bare));
    with_ours.push_back(timed(ours));
  }
  report("graph of 20 launches, bare replay", median(with_bare), "us");
  report("graph of 20 launches, executor's replay", median(with_ours), "us");
  const double ratio = median(with_ours) / median(with_bare);
  report("graph replay, executor over bare", ratio, "", "at most 1.05", ratio <= 1.05);
}

/// Fills a matrix with numbers in 0.5 to 1, not with zeros: those draw less power and run faster.
void fill(cuda_executor& e, cuda_executor::stream& s, cuda::device_buffer& m, data_type t) {
  std::mt19937 random{1};
  const auto draw = [&]() -> std::uint32_t { return 0x3F000000U | (random() & 0x7FFFFFU); };
  std::vector<std::byte> block(std::min<std::size_t>(m.size(), std::size_t{4} << 20U));
  for (std::size_t i = 0; i + 4 <= block.size(); i += 4) {
    std::uint32_t x = draw();
    if (t == data_type::bf16) x = (x >> 16U) | (draw() & 0xFFFF0000U);
    if (t == data_type::f16) x = 0x38003800U | (random() & 0x03FF03FFU);
    std::memcpy(block.data() + i, &x, 4);
  }
  for (std::size_t at = 0; at < m.size(); at += block.size()) {
    e.copy(s, {.destination = m.data() + at,
               .source = block.data(),
               .row_bytes = std::min(block.size(), m.size() - at)});
  }
  settle(e, s);
}

void products(cuda_executor& e) {
  if (!cuda::why_no_blas().empty()) {
    fmt::print("products: skipped: {}\n", cuda::why_no_blas());
    return;
  }
  auto s = e.make_stream();
  cublasHandle_t direct = nullptr;
  void* workspace = nullptr;
  constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;
  expects(cublasCreate(&direct) == CUBLAS_STATUS_SUCCESS, "cuda_bench: cublasCreate");
  cuda::check(cudaMalloc(&workspace, workspace_bytes), "cudaMalloc");
  cublasSetStream(direct, s.view().native());
  cublasSetWorkspace(direct, workspace, workspace_bytes);
  struct kind {
    const char* name;
    data_type type;
    cudaDataType_t native;
    std::size_t bytes;
  };
  cuda::event begin = cuda::event::make(cuda::event::timing::yes);
  cuda::event end = cuda::event::make(cuda::event::timing::yes);
  for (const kind k :
       {kind{"bf16", data_type::bf16, CUDA_R_16BF, 2}, kind{"f16", data_type::f16, CUDA_R_16F, 2},
        kind{"f32", data_type::f32, CUDA_R_32F, 4}}) {
    for (std::size_t n = 128; n <= (quick ? 1024U : 8192U); n *= 2) {
      auto a = e.allocate(n * n * k.bytes);
      auto b = e.allocate(n * n * k.bytes);
      auto c = e.allocate(n * n * k.bytes);
      fill(e, s, a, k.type);
      fill(e, s, b, k.type);
      const auto ours = [&] {
        e.gemm(s, {.type = k.type,
                   .m = n,
                   .n = n,
                   .k = n,
                   .a = a.data(),
                   .lda = n,
                   .b = b.data(),
                   .ldb = n,
                   .c = c.data(),
                   .ldc = n});
      };
      const float one = 1;
      const float zero = 0;
      const int i = static_cast<int>(n);
      const auto bare = [&] {
        (void)cublasGemmEx(direct, CUBLAS_OP_N, CUBLAS_OP_N, i, i, i, &one, b.data(), k.native, i,
                           a.data(), k.native, i, &zero, c.data(), k.native, i, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT);
      };
      // Enough products for about 20 ms; few enough to stay within the device's queue.
      const int count = static_cast<int>(
          std::clamp<double>(2e12 / (2.0 * static_cast<double>(n * n * n)), 4, 400));
      const auto timed = [&](auto work, bool on_host) {
        // The device starts late, with its queue full: else short products would wait for calls.
        if (!on_host) test_kernels::spin(s.view().native(), 1, std::int64_t{20'000} * count);
        const auto start = clock_type::now();
        begin.record(s.view());
        for (int x = 0; x < count; ++x) work();
        const double host = since_us(start) / count;
        end.record(s.view());
        settle(e, s);
        return on_host ? host : to_ms(cuda::event::between(begin.view(), end.view())) * 1e3 / count;
      };
      const bool on_host = n < 1024;
      (void)timed(bare, on_host);
      (void)timed(ours, on_host);
      std::vector<double> with_bare;
      std::vector<double> with_ours;
      for (int x = 0; x < (quick ? 3 : 9); ++x) {
        with_bare.push_back(timed(bare, on_host));
        with_ours.push_back(timed(ours, on_host));
      }
      const double x = median(with_bare);
      const double y = median(with_ours);
      const std::string name = fmt::format("product {} {}", k.name, n);
      if (on_host) {
        report(name + ", call added by the executor", y - x, "us", "at most 0.5 us", y - x <= 0.5);
      } else {
        report(name,
               2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / y /
                   1e6,
               "TFLOP/s");
        report(name + ", executor over cuBLAS", y / x, "", "at most 1.02", y / x <= 1.02);
      }
    }
  }
  cublasDestroy(direct);
  (void)cudaFree(workspace);
}

void partitions(cuda_executor& e, const cuda::device_description& d) {
  if (d.partition_steps < 2) {
    fmt::print("partitions: skipped: this device cannot be divided\n");
    return;
  }
  for (const unsigned percent : {25U, 50U, 75U, 100U}) {
    auto s = e.make_stream(device_share{percent});
    report(fmt::format("partition of {} %", percent), s.multiprocessors(), "SMs");
  }
  auto other = e.make_stream(device_share{50});
  auto s = e.make_stream(device_share{25});
  // The first of its size has a context made, which waits for all kernels of the device.
  e.rebind(s, device_share{50});
  e.rebind(s, device_share{25});
  settle(e, s);
  auto other_done = e.make_event();
  bool waited = false;
  std::vector<double> ms;
  for (int i = 0; i < (quick ? 4 : 20); ++i) {
    // About 200 ms: a switch that waited for the other partition would be as long.
    e.launch(other, [](cuda::stream_view v) { test_kernels::spin(v.native(), 16, 400'000'000); });
    e.record(other, other_done);
    e.launch(s, [](cuda::stream_view v) { test_kernels::spin(v.native(), 16, 100'000); });
    const auto start = clock_type::now();
    e.rebind(s, device_share{i % 2 == 0 ? 50U : 25U});
    e.launch(s, [](cuda::stream_view v) { test_kernels::nothing(v.native()); });
    settle(e, s);
    ms.push_back(since_us(start) / 1e3);
    waited = waited || e.is_done(other_done);
    settle(e, other);
  }
  report("partition switch while another runs, median", median(ms), "ms", "below 20 ms",
         median(ms) < 20);
  report("partition switches that outlasted the other's work", waited ? 1 : 0, "", "none", !waited);
  report("partition switch while another runs, slowest", *std::ranges::max_element(ms), "ms",
         "below 20 ms", *std::ranges::max_element(ms) < 20);
}

void overlap(cuda_executor& e, const cuda::device_description& d) {
  auto a = e.make_stream();
  auto b = e.make_stream();
  const unsigned blocks = std::max(1U, d.multiprocessors * 2 / 5);
  const auto work = [&](cuda_executor::stream& s) {
    for (int i = 0; i < 20; ++i) {
      e.launch(s, [&](cuda::stream_view v) { test_kernels::spin(v.native(), blocks, 2'000'000); });
    }
  };
  const auto timed = [&](bool apart) {
    const auto start = clock_type::now();
    work(a);
    work(apart ? b : a);
    settle(e, a);
    settle(e, b);
    return since_us(start);
  };
  (void)timed(true);
  std::vector<double> serial;
  std::vector<double> parallel;
  for (int i = 0; i < 5; ++i) {
    serial.push_back(timed(false));
    parallel.push_back(timed(true));
  }
  const double ratio = median(serial) / median(parallel);
  report("two streams, kernels of 2/5 of the device: serial over both", ratio, "", "at least 1.7",
         ratio >= 1.7);
}

void models_at(const std::vector<std::string>& names, const std::vector<unsigned>& percents,
               const std::vector<std::uint32_t>& batches) {
  for (const std::string& name : names) {
    models::timing_plan plan{.model = name, .shares = {}, .max_batch = batches.back(), .seed = 1};
    for (const unsigned p : percents) plan.shares.emplace_back(p);
    const auto model = models::time_on_gpu(plan);
    for (std::size_t p = 0; p < percents.size(); ++p) {
      for (const std::uint32_t batch : batches) {
        std::vector<double> ms;
        std::vector<std::vector<double>> stages(model->stages());
        for (int i = 0; i < (quick ? 4 : 12); ++i) {
          const engine::measurement m = model->run(p, batch);
          if (i < 3) continue;  // Warm-up.
          ms.push_back(to_ms(m.whole));
          for (std::size_t x = 0; x < stages.size(); ++x) stages[x].push_back(to_ms(m.stages[x]));
        }
        std::string parts;
        for (const auto& stage : stages) parts += fmt::format(" {:.3f}", median(stage));
        report(fmt::format("{} batch {} on {} ({}), stages{}", name, batch, percents[p],
                           model->partition(p), parts),
               median(ms), "ms");
        if (batch == batches.back()) {
          report(fmt::format("{} batch {} on {} %", name, batch, percents[p]),
                 1e3 * batch / median(ms), "requests/s");
        }
      }
    }
  }
}

void section(const char* name, const std::function<void()>& run) {
  fmt::print("\n{}\n", name);
  try {
    run();
  } catch (const std::exception& e) {
    fmt::print("{}: FAILED: {}\n", name, e.what());
    json += fmt::format("{}  {{\"name\": \"{}\", \"error\": \"{}\"}}", json.empty() ? "" : ",\n",
                        name, escaped(e.what()));
  }
  write_json();
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view{argv[i]} == "--quick") {
      quick = true;
    } else {
      out_path = argv[i];
    }
  }
  const cuda::inventory found = cuda::find_devices();
  if (found.devices.empty()) {
    fmt::print("skipped: {}\n", found.reason);
    return 77;
  }
  const cuda::device_description& d = found.devices.front();
  device_name = d.name;
  fmt::print("{}, compute {}.{}, {} SMs ({} partitions of {}), {:.1f} GB, {:.0f} GB/s\n", d.name,
             d.compute_major, d.compute_minor, d.multiprocessors, d.partition_steps,
             d.partition_step, static_cast<double>(d.memory_bytes) / 1e9, d.bandwidth_gb_s);
  {
    cuda_executor e{{.pool_bytes = std::size_t{1} << 30U}};
    section("hand-over", [&] { hand_over(e); });
    section("graphs", [&] { replay(e); });
    section("products", [&] { products(e); });
    section("partitions", [&] { partitions(e, d); });
    section("overlap", [&] { overlap(e, d); });
  }
  const std::vector<unsigned> whole{100};
  const std::vector<std::uint32_t> batches =
      quick ? std::vector<std::uint32_t>{1, 4} : std::vector<std::uint32_t>{1, 2, 4, 8, 16, 32};
  if (d.partition_steps >= 4) {
    section("BERT-base by share", [&] { models_at({"bert_base"}, {25, 50, 75, 100}, {32}); });
  }
  for (const char* name : {"lenet", "resnet_mini", "bert_mini", "bert_base", "bert_large",
                           "resnet152", "vgg19", "unet", "linknet"}) {
    section(name, [&] { models_at({name}, whole, batches); });
  }
  return 0;
}
