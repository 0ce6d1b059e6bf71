// SPDX-License-Identifier: Apache-2.0
// Questions that only a GPU answers, in about half a minute: what bandwidth can a kernel read with?
// What does a node of a graph cost, a copy, a look at an event? May an event of the primary context
// be recorded on a stream of a green context? Which multiprocessors has a partition, what is a
// share worth, and how much do partitions slow each other down? What of a switch between partitions
// waits for kernels that run? Prints one JSON object a line. Needs a driver for CUDA 12.5. Usage:
// runtime.cuda_probe. C++17, and nothing of cohort: it shows the driver, not the library.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace {

using steady = std::chrono::steady_clock;

double us_since(steady::time_point t) {
  return std::chrono::duration<double, std::micro>(steady::now() - t).count();
}
void row(const std::string& name, double value, const char* unit, const std::string& note = "") {
  std::printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"note\": \"%s\"}\n",
              name.c_str(), value, unit, note.c_str());
  std::fflush(stdout);
}
double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : x[x.size() / 2];
}
void told(cudaError_t e, const char* what) {
  if (e != cudaSuccess) row(what, e, "cudaError", cudaGetErrorName(e));
  (void)cudaGetLastError();
}

__global__ void copy(float4* to, const float4* from, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    to[i] = from[i];
  }
}
__global__ void read(float* out, const float4* from, std::size_t n) {
  float sum = 0;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const float4 v = __ldcs(from + i);
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 12345.F) *out = sum;  // So that nothing is left out.
}
__global__ void multiply_add(float* out, int times) {
  const float a = static_cast<float>(threadIdx.x);
  float sums[8] = {};
  for (int i = 0; i < times; ++i) {
    for (float& s : sums) s = fmaf(a, 1.000001F, s);
  }
  float sum = 0;
  for (const float s : sums) sum += s;
  if (sum == 12345.F) *out = sum;
}
__global__ void where(unsigned* to, long long clocks) {
  unsigned id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  if (threadIdx.x == 0) to[blockIdx.x] = id;
  const long long begin = clock64();
  while (clock64() - begin < clocks) {
  }
}
__global__ void spin(long long clocks) {
  const long long begin = clock64();
  while (clock64() - begin < clocks) {
  }
}
__global__ void nothing() {}
__global__ void nothing_early() {
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
}
__global__ void hold(volatile int* gate) {
  while (*gate == 0) {
  }
}

struct green_driver {
  decltype(&cuDeviceGetDevResource) resource = nullptr;
  decltype(&cuDevSmResourceSplitByCount) split = nullptr;
  decltype(&cuDevResourceGenerateDesc) describe = nullptr;
  decltype(&cuGreenCtxCreate) create = nullptr;
  decltype(&cuGreenCtxDestroy) destroy = nullptr;
  decltype(&cuGreenCtxStreamCreate) make_stream = nullptr;
  decltype(&cuCtxFromGreenCtx) context_of = nullptr;
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;
  bool is_whole = true;

  green_driver() {
    find(resource, "cuDeviceGetDevResource");
    find(split, "cuDevSmResourceSplitByCount");
    find(describe, "cuDevResourceGenerateDesc");
    find(create, "cuGreenCtxCreate");
    find(destroy, "cuGreenCtxDestroy");
    find(make_stream, "cuGreenCtxStreamCreate");
    find(context_of, "cuCtxFromGreenCtx");
    find(push, "cuCtxPushCurrent");
    find(pop, "cuCtxPopCurrent");
  }
  template <class Function>
  void find(Function& into, const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult how{};
    (void)cudaGetDriverEntryPointByVersion(name, &found, 12050, cudaEnableDefault, &how);
    (void)cudaGetLastError();
    into = reinterpret_cast<Function>(found);
    if (found == nullptr) {
      row(std::string{"missing "} + name, 1, "");
      is_whole = false;
    }
  }
};

struct partition {
  const green_driver& driver;
  CUgreenCtx context = nullptr;
  CUstream stream = nullptr;
  unsigned multiprocessors = 0;

  /// @param times Microseconds of: description, context, stream.
  partition(const green_driver& d, std::vector<CUdevResource> parts, double* times = nullptr,
            int priority = 0)
      : driver{d} {
    for (const CUdevResource& r : parts) multiprocessors += r.sm.smCount;
    CUdevResourceDesc description{};
    auto begin = steady::now();
    CUresult e = d.describe(&description, parts.data(), static_cast<unsigned>(parts.size()));
    if (times != nullptr) times[0] = us_since(begin);
    begin = steady::now();
    if (e == CUDA_SUCCESS) e = d.create(&context, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    if (times != nullptr) times[1] = us_since(begin);
    begin = steady::now();
    if (e == CUDA_SUCCESS) e = d.make_stream(&stream, context, CU_STREAM_NON_BLOCKING, priority);
    if (times != nullptr) times[2] = us_since(begin);
    if (e != CUDA_SUCCESS) row("a green context was refused", e, "CUresult");
  }
  partition(const partition&) = delete;
  partition& operator=(const partition&) = delete;
  ~partition() {
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
    if (context != nullptr) (void)driver.destroy(context);
  }
};

/// The median of some rounds, the first not counted.
template <class F>
double timed(cudaStream_t s, int rounds, F work) {
  std::vector<double> us;
  for (int i = 0; i <= rounds; ++i) {
    const auto begin = steady::now();
    work();
    (void)cudaStreamSynchronize(s);
    if (i > 0) us.push_back(us_since(begin));
  }
  return median(us);
}

struct gate {
  int* open = nullptr;
  gate() { (void)cudaMallocHost(&open, sizeof(int)); }
  void set(int to) { *static_cast<volatile int*>(open) = to; }
};

constexpr std::size_t bytes = std::size_t{1} << 30U;
constexpr std::size_t packs = bytes / sizeof(float4);
int multiprocessors = 0;
float4* a = nullptr;
float4* b = nullptr;
float* sink = nullptr;
cudaStream_t plain = nullptr;

void memory() {
  const auto blocks = static_cast<unsigned>(multiprocessors) * 16;
  double us = timed(plain, 9, [&] { copy<<<blocks, 512, 0, plain>>>(b, a, packs); });
  row("copy kernel, read and written", 2 * bytes / us / 1e3, "GB/s");
  us = timed(plain, 9, [&] { read<<<blocks, 512, 0, plain>>>(sink, a, packs); });
  row("read-only kernel", bytes / us / 1e3, "GB/s", "the ceiling of decode");
  us =
      timed(plain, 9, [&] { (void)cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, plain); });
  row("cudaMemcpyAsync within the device, read and written", 2 * bytes / us / 1e3, "GB/s");
  constexpr std::size_t block = std::size_t{64} << 20U;
  char* pinned = nullptr;
  told(cudaMallocHost(&pinned, block), "cudaMallocHost");
  us = timed(plain, 9,
             [&] { (void)cudaMemcpyAsync(a, pinned, block, cudaMemcpyHostToDevice, plain); });
  row("pinned host to device", block / us / 1e3, "GB/s");
  us = timed(plain, 9,
             [&] { (void)cudaMemcpyAsync(pinned, a, block, cudaMemcpyDeviceToHost, plain); });
  row("device to pinned host", block / us / 1e3, "GB/s");
  us = timed(plain, 9, [&] {
    for (std::size_t i = 0; i < 32; ++i) {
      (void)cudaMemcpyAsync(reinterpret_cast<char*>(a) + i * 4096, pinned + i * 4096, 4096,
                            cudaMemcpyHostToDevice, plain);
    }
  });
  row("32 copies of 4 KiB to the device", us, "us");
  std::vector<char> pageable(block);
  us = timed(plain, 5, [&] {
    (void)cudaMemcpyAsync(a, pageable.data(), block, cudaMemcpyHostToDevice, plain);
  });
  row("pageable host to device", block / us / 1e3, "GB/s");
}

void events() {
  gate g;
  cudaEvent_t e = nullptr;
  (void)cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
  std::vector<double> seen;
  std::vector<double> query;
  for (int i = 0; i < 200; ++i) {
    g.set(0);
    hold<<<1, 1, 0, plain>>>(g.open);
    (void)cudaEventRecord(e, plain);
    for (int k = 0; k < 20; ++k) (void)cudaEventQuery(e);
    const auto begin = steady::now();
    g.set(1);
    int looks = 1;
    while (cudaEventQuery(e) == cudaErrorNotReady) ++looks;
    seen.push_back(us_since(begin));
    query.push_back(seen.back() / looks);
  }
  row("an event seen by polling after its kernel may end, median", median(seen), "us");
  row("one event query", median(query), "us");
}

void graphs() {
  for (const bool early : {false, true}) {
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t graph = nullptr;
    (void)cudaStreamBeginCapture(plain, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < 400; ++i) {
      if (!early) {
        nothing<<<132, 256, 0, plain>>>();
        continue;
      }
      cudaLaunchConfig_t how{};
      how.gridDim = 132;
      how.blockDim = 256;
      how.stream = plain;
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
      how.attrs = &attribute;
      how.numAttrs = 1;
      (void)cudaLaunchKernelEx(&how, nothing_early);
    }
    told(cudaStreamEndCapture(plain, &recorded), "cudaStreamEndCapture");
    told(cudaGraphInstantiate(&graph, recorded, 0), "cudaGraphInstantiate");
    const std::string which = early ? ", programmatic" : "";
    row("a node of a graph of 400 empty kernels" + which,
        timed(plain, 20, [&] { (void)cudaGraphLaunch(graph, plain); }) / 400, "us");
    std::vector<double> host;
    for (int i = 0; i < 20; ++i) {
      const auto begin = steady::now();
      (void)cudaGraphLaunch(graph, plain);
      host.push_back(us_since(begin));
      (void)cudaStreamSynchronize(plain);
    }
    row("its launch on the host" + which, median(host), "us");
    (void)cudaGraphExecDestroy(graph);
    (void)cudaGraphDestroy(recorded);
  }
}

void event_rule(const green_driver& d, const std::vector<CUdevResource>& half) {
  partition x{d, half};
  gate g;
  g.set(0);
  cudaEvent_t e = nullptr;
  (void)cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
  hold<<<1, 1, 0, x.stream>>>(g.open);
  const cudaError_t recorded = cudaEventRecord(e, x.stream);
  row("an event of the primary context is recorded on a green context's stream", recorded,
      "cudaError", cudaGetErrorName(recorded));
  const cudaError_t query = cudaEventQuery(e);
  row("its query while the kernel before it is held", query, "cudaError",
      std::string{cudaGetErrorName(query)} + "; right is cudaErrorNotReady");
  const cudaError_t waits = cudaStreamWaitEvent(plain, e, 0);
  row("a stream of the primary context waits for it", waits, "cudaError", cudaGetErrorName(waits));
  CUcontext context = nullptr;
  CUcontext was = nullptr;
  (void)d.context_of(&context, x.context);
  (void)d.push(context);
  cudaEvent_t own = nullptr;
  (void)cudaEventCreateWithFlags(&own, cudaEventDisableTiming);
  const cudaError_t own_recorded = cudaEventRecord(own, x.stream);
  row("an event made in the green context is recorded there", own_recorded, "cudaError",
      cudaGetErrorName(own_recorded));
  (void)d.pop(&was);
  g.set(1);
  told(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

std::set<unsigned> used_by(cudaStream_t s) {
  constexpr unsigned blocks = 512;
  static unsigned* ids = nullptr;
  if (ids == nullptr) told(cudaMallocHost(&ids, blocks * sizeof(unsigned)), "cudaMallocHost");
  where<<<blocks, 32, 0, s>>>(ids, 20'000);
  told(cudaStreamSynchronize(s), "where");
  return {ids, ids + blocks};
}

void shares(const green_driver& d, const std::vector<CUdevResource>& steps,
            const std::vector<CUdevResource>& first, const std::vector<CUdevResource>& second) {
  {
    partition x{d, first};
    partition y{d, second};
    const auto in_x = used_by(x.stream);
    const auto in_y = used_by(y.stream);
    unsigned both = 0;
    for (const unsigned id : in_x) both += static_cast<unsigned>(in_y.count(id));
    row("multiprocessors seen in the first half", static_cast<double>(in_x.size()), "");
    row("multiprocessors seen in the rest", static_cast<double>(in_y.size()), "");
    row("multiprocessors seen in both", both, "", "right is 0");
    const auto reads = [&](const partition& p) {
      read<<<p.multiprocessors * 16, 512, 0, p.stream>>>(sink, &p == &x ? a : b, packs / 2);
    };
    const auto computes = [&](const partition& p) {
      multiply_add<<<p.multiprocessors * 16, 256, 0, p.stream>>>(sink, 8000);
    };
    const double read_alone = timed(x.stream, 5, [&] { reads(x); });
    const double computed_alone = timed(x.stream, 5, [&] { computes(x); });
    const auto beside = [&](auto mine, auto theirs, int count) {
      const double us = timed(x.stream, 5, [&] {
        for (int i = 0; i < count; ++i) theirs(y);
        mine(x);
      });
      told(cudaDeviceSynchronize(), "beside");
      return us;
    };
    row("reading beside reading takes", beside(reads, reads, 4) / read_alone, "times as long");
    row("reading beside computing takes", beside(reads, computes, 8) / read_alone, "times as long");
    row("computing beside reading takes", beside(computes, reads, 8) / computed_alone,
        "times as long");
    row("computing beside computing takes", beside(computes, computes, 4) / computed_alone,
        "times as long");
  }
  for (std::size_t count = 1; count <= steps.size(); count += count < 4 ? 1 : 2) {
    partition x{d, {steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(count)}};
    if (x.stream == nullptr) return;
    const std::string name = "share of " + std::to_string(x.multiprocessors) + " multiprocessors, ";
    double us = timed(x.stream, 3, [&] {
      read<<<x.multiprocessors * 16, 512, 0, x.stream>>>(sink, a, packs / 4);
    });
    row(name + "reads", bytes / 4 / us / 1e3, "GB/s");
    us = timed(x.stream, 3,
               [&] { multiply_add<<<x.multiprocessors * 16, 256, 0, x.stream>>>(sink, 4000); });
    row(name + "computes", 2.0 * 8 * 4000 * 256 * 16 * x.multiprocessors / us / 1e6, "TFLOP/s");
  }
}

/// What waits while a kernel of about 200 ms runs elsewhere.
void switches(const green_driver& d, const std::vector<CUdevResource>& steps) {
  constexpr long long long_clocks = 400'000'000;
  partition elsewhere{
      d, {steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2)}};
  const std::vector<CUdevResource> two{steps.end() - 2, steps.end()};
  for (const CUstream busy :
       {static_cast<CUstream>(nullptr), static_cast<CUstream>(plain), elsewhere.stream}) {
    const std::string beside = busy == nullptr ? ", device idle"
                               : busy == plain ? ", beside a kernel on a plain stream"
                                               : ", beside a kernel on another partition";
    const auto ms = [&](const char* what, auto act) {
      told(cudaDeviceSynchronize(), "switches");
      if (busy != nullptr) spin<<<16, 32, 0, busy>>>(long_clocks);
      const auto begin = steady::now();
      act();
      row(what + beside, us_since(begin) / 1e3, "ms");
    };
    double times[3] = {};
    told(cudaDeviceSynchronize(), "switches");
    if (busy != nullptr) spin<<<16, 32, 0, busy>>>(long_clocks);
    auto x = new partition{d, two, times};
    row("a green context described" + beside, times[0] / 1e3, "ms");
    row("a green context made" + beside, times[1] / 1e3, "ms");
    row("its stream made" + beside, times[2] / 1e3, "ms");
    ms("its first kernel launched", [&] { nothing<<<1, 1, 0, x->stream>>>(); });
    ms("a kernel launched and waited for", [&] {
      nothing<<<1, 1, 0, x->stream>>>();
      (void)cudaStreamSynchronize(x->stream);
    });
    cudaEvent_t e = nullptr;
    ms("an event made", [&] { (void)cudaEventCreateWithFlags(&e, cudaEventDisableTiming); });
    ms("the event destroyed", [&] { (void)cudaEventDestroy(e); });
    ms("stream and green context destroyed", [&] { delete x; });
    told(cudaDeviceSynchronize(), "switches");
  }
}

void partitions() {
  const green_driver d;
  if (!d.is_whole) return;
  CUdevResource all{};
  row("cuDeviceGetDevResource", d.resource(0, &all, CU_DEV_RESOURCE_TYPE_SM), "CUresult");
  unsigned count = 0;
  (void)d.split(nullptr, &count, &all, nullptr, 0, 1);
  std::vector<CUdevResource> steps(count);
  CUdevResource rest{};
  row("split into the smallest steps", d.split(steps.data(), &count, &all, &rest, 0, 1),
      "CUresult");
  if (count < 4) return;
  row("steps", count, "",
      "of " + std::to_string(steps[0].sm.smCount) + ", and " + std::to_string(rest.sm.smCount) +
          " left over");
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount > 0) {
    partition left_over{d, {rest}};
    row("multiprocessors seen in a partition of what is left over",
        static_cast<double>(used_by(left_over.stream).size()), "");
    if (rest.sm.smCount >= steps[0].sm.smCount) steps.push_back(rest);
  }
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  event_rule(d, {steps.begin(), middle});
  int least = 0;
  int most = 0;
  (void)cudaDeviceGetStreamPriorityRange(&least, &most);
  {
    partition x{d, {steps[0]}, nullptr, most};
    int got = 0;
    (void)cudaStreamGetPriority(x.stream, &got);
    row("priority of a green context's stream", got, "", "asked for " + std::to_string(most));
  }
  shares(d, steps, {steps.begin(), middle}, {middle, steps.end()});
  switches(d, steps);
}

}  // namespace

int main() {
  int driver = 0;
  cudaDeviceProp p{};
  if (cudaDriverGetVersion(&driver) != cudaSuccess ||
      cudaGetDeviceProperties(&p, 0) != cudaSuccess) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  told(cudaSetDevice(0), "cudaSetDevice");
  multiprocessors = p.multiProcessorCount;
  int clock_khz = 0;
  int bus_bits = 0;
  (void)cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, 0);
  (void)cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, 0);
  row(std::string{"device "} + p.name, multiprocessors, "multiprocessors",
      "driver for CUDA " + std::to_string(driver));
  row("nominal bandwidth by clock and bus", 2.0 * clock_khz * 1e3 * bus_bits / 8 / 1e9, "GB/s");
  row("L2", p.l2CacheSize / 1048576.0, "MiB");
  told(cudaMalloc(&a, bytes), "cudaMalloc");
  told(cudaMalloc(&b, bytes), "cudaMalloc");
  told(cudaMalloc(&sink, sizeof(float)), "cudaMalloc");
  told(cudaMemset(a, 1, bytes), "cudaMemset");
  told(cudaStreamCreateWithFlags(&plain, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  memory();
  events();
  graphs();
  partitions();
  told(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return 0;
}
