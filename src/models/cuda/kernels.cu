// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <cfloat>

namespace cohort::models::kernels {
namespace {

constexpr unsigned threads = 256;

/// Number of blocks for `n` items; kernels loop, so that any n fits.
unsigned blocks_for(std::size_t n) {
  const std::size_t blocks = (n + threads - 1) / threads;
  return static_cast<unsigned>(blocks < 65535 ? blocks : 65535);
}

/// Calls f(i) for i below n, spread over the grid.
template <class F>
__global__ void for_each(std::size_t n, F f) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += step) {
    f(i);
  }
}
template <class F>
void launch(cudaStream_t s, std::size_t n, F f) {
  if (n > 0) for_each<<<blocks_for(n), threads, 0, s>>>(n, f);
}

__device__ float apply(float x, activation f) {
  switch (f) {
    case activation::none:
      return x;
    case activation::relu:
      return x > 0 ? x : 0;
    case activation::gelu: {
      const float u = 0.7978845608F * (x + 0.044715F * x * x * x);
      return x * (1 - 1 / (1 + expf(2 * u)));
    }
    case activation::tanh:
      return tanhf(x);
  }
  return x;
}

/// The sum over a block, in all its threads. `scratch` holds one float for each warp.
__device__ float block_sum(float x, float* scratch) {
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, d);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += scratch[w];
  __syncthreads();
  return sum;
}
__device__ float block_max(float x, float* scratch) {
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, d));
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float most = -FLT_MAX;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) most = fmaxf(most, scratch[w]);
  __syncthreads();
  return most;
}

/// A block for each row.
__global__ void layer_norm_kernel(float* x, const float* gain, const float* bias, std::size_t rows,
                                  std::size_t columns) {
  __shared__ float scratch[threads / 32];
  for (std::size_t r = blockIdx.x; r < rows; r += gridDim.x) {
    float* row = x + r * columns;
    float sum = 0;
    for (std::size_t c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c];
    const float mean = block_sum(sum, scratch) / static_cast<float>(columns);
    float squares = 0;
    for (std::size_t c = threadIdx.x; c < columns; c += blockDim.x) {
      squares += (row[c] - mean) * (row[c] - mean);
    }
    const float variance = block_sum(squares, scratch) / static_cast<float>(columns);
    const float scale = 1 / sqrtf(variance + 1e-5F);
    for (std::size_t c = threadIdx.x; c < columns; c += blockDim.x) {
      row[c] = (row[c] - mean) * scale * gain[c] + bias[c];
    }
  }
}

/// A block for each row of scores.
__global__ void masked_softmax_kernel(float* x, const float* lengths, head_shape h) {
  __shared__ float scratch[threads / 32];
  const std::size_t rows = h.sequences * h.heads * h.tokens;
  for (std::size_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const auto length = static_cast<std::size_t>(lengths[r / (h.heads * h.tokens)]);
    float* row = x + r * h.tokens;
    float most = -FLT_MAX;
    for (std::size_t c = threadIdx.x; c < length; c += blockDim.x) most = fmaxf(most, row[c]);
    most = block_max(most, scratch);
    float sum = 0;
    for (std::size_t c = threadIdx.x; c < length; c += blockDim.x) {
      row[c] = expf(row[c] - most);
      sum += row[c];
    }
    sum = block_sum(sum, scratch);
    for (std::size_t c = threadIdx.x; c < h.tokens; c += blockDim.x) {
      row[c] = c < length ? row[c] / sum : 0;
    }
  }
}

/// A block for each sequence: its length is the last token that is not 0.
__global__ void lengths_kernel(const std::int32_t* ids, float* lengths, std::size_t sequences,
                               std::size_t tokens, std::size_t vocabulary) {
  __shared__ float scratch[threads / 32];
  for (std::size_t n = blockIdx.x; n < sequences; n += gridDim.x) {
    float last = 1;
    for (std::size_t t = threadIdx.x; t < tokens; t += blockDim.x) {
      const std::uint32_t id = static_cast<std::uint32_t>(ids[n * tokens + t]);
      if (id != 0 && id < vocabulary) last = static_cast<float>(t + 1);
    }
    last = block_max(last, scratch);
    if (threadIdx.x == 0) lengths[n] = last;
  }
}

}  // namespace

void im2col(cudaStream_t s, const float* in, float* out, const window_shape& w) {
  const std::size_t line = w.kernel * w.kernel * w.channels;
  const std::size_t wide = w.out_width();
  const std::size_t positions = w.out_height() * wide;
  launch(s, w.images * positions * line, [=] __device__(std::size_t i) {
    const std::size_t cell = i % line;
    const std::size_t p = i / line % positions;
    const std::size_t n = i / line / positions;
    const std::size_t c = cell % w.channels;
    const std::size_t k = cell / w.channels;
    // Unsigned wrap-around turns "outside of the image" into a very large number.
    const std::size_t row = p / wide * w.stride + k / w.kernel - w.padding;
    const std::size_t column = p % wide * w.stride + k % w.kernel - w.padding;
    out[i] = row < w.height && column < w.width
                 ? in[((n * w.height + row) * w.width + column) * w.channels + c]
                 : 0;
  });
}

void col2im(cudaStream_t s, const float* in, float* out, const window_shape& w) {
  const std::size_t wide = w.out_width();
  const std::size_t high = w.out_height();
  // Each thread gathers the contributions to its pixel, in the order of the host's loops.
  launch(s, w.images * w.height * w.width * w.channels, [=] __device__(std::size_t i) {
    const std::size_t c = i % w.channels;
    const std::size_t column = i / w.channels % w.width + w.padding;
    const std::size_t row = i / w.channels / w.width % w.height + w.padding;
    const std::size_t n = i / w.channels / w.width / w.height;
    float sum = 0;
    // Positions y with y · stride <= row < y · stride + kernel.
    const std::size_t y0 = row < w.kernel ? 0 : (row - w.kernel) / w.stride + 1;
    const std::size_t x0 = column < w.kernel ? 0 : (column - w.kernel) / w.stride + 1;
    for (std::size_t y = y0; y < high && y * w.stride <= row; ++y) {
      for (std::size_t x = x0; x < wide && x * w.stride <= column; ++x) {
        const std::size_t k = (row - y * w.stride) * w.kernel + column - x * w.stride;
        sum +=
            in[((n * high + y) * wide + x) * w.kernel * w.kernel * w.channels + k * w.channels + c];
      }
    }
    out[i] = sum;
  });
}

void bias_activation(cudaStream_t s, float* x, const float* bias, std::size_t rows,
                     std::size_t columns, activation f) {
  launch(s, rows * columns,
         [=] __device__(std::size_t i) { x[i] = apply(x[i] + bias[i % columns], f); });
}

void add_activation(cudaStream_t s, float* x, const float* y, std::size_t count, activation f) {
  launch(s, count, [=] __device__(std::size_t i) { x[i] = apply(x[i] + y[i], f); });
}

void max_pool(cudaStream_t s, const float* in, float* out, const window_shape& w) {
  const std::size_t wide = w.out_width();
  const std::size_t positions = w.out_height() * wide;
  launch(s, w.images * positions * w.channels, [=] __device__(std::size_t i) {
    const std::size_t c = i % w.channels;
    const std::size_t p = i / w.channels % positions;
    const std::size_t n = i / w.channels / positions;
    float most = -INFINITY;
    for (std::size_t k = 0; k < w.kernel * w.kernel; ++k) {
      const std::size_t row = p / wide * w.stride + k / w.kernel - w.padding;
      const std::size_t column = p % wide * w.stride + k % w.kernel - w.padding;
      if (row >= w.height || column >= w.width) continue;
      most = fmaxf(most, in[((n * w.height + row) * w.width + column) * w.channels + c]);
    }
    out[i] = most;
  });
}

void global_average(cudaStream_t s, const float* in, float* out, std::size_t images,
                    std::size_t positions, std::size_t channels) {
  launch(s, images * channels, [=] __device__(std::size_t i) {
    const std::size_t c = i % channels;
    const std::size_t n = i / channels;
    float sum = 0;
    for (std::size_t p = 0; p < positions; ++p) sum += in[(n * positions + p) * channels + c];
    out[i] = sum / static_cast<float>(positions);
  });
}

void layer_norm(cudaStream_t s, float* x, const float* gain, const float* bias, std::size_t rows,
                std::size_t columns) {
  if (rows == 0) return;
  const unsigned blocks = static_cast<unsigned>(rows < 65535 ? rows : 65535);
  layer_norm_kernel<<<blocks, threads, 0, s>>>(x, gain, bias, rows, columns);
}

void embed(cudaStream_t s, const std::int32_t* ids, const float* table, const float* positions,
           float* out, float* lengths, std::size_t sequences, std::size_t tokens, std::size_t width,
           std::size_t vocabulary) {
  if (sequences == 0) return;
  launch(s, sequences * tokens * width, [=] __device__(std::size_t i) {
    const std::size_t c = i % width;
    const std::size_t at = i / width;
    const std::uint32_t raw = static_cast<std::uint32_t>(ids[at]);
    const std::size_t id = raw < vocabulary ? raw : 0;
    out[i] = table[id * width + c] + positions[at % tokens * width + c];
  });
  const unsigned blocks = static_cast<unsigned>(sequences < 65535 ? sequences : 65535);
  lengths_kernel<<<blocks, threads, 0, s>>>(ids, lengths, sequences, tokens, vocabulary);
}

void split_heads(cudaStream_t s, const float* qkv, float* q, float* k, float* v,
                 const head_shape& h) {
  const std::size_t width = h.heads * h.head_size;
  launch(s, h.sequences * h.tokens * 3 * width, [=] __device__(std::size_t i) {
    const std::size_t c = i % h.head_size;
    const std::size_t a = i / h.head_size % h.heads;
    const std::size_t part = i / width % 3;
    const std::size_t t = i / width / 3 % h.tokens;
    const std::size_t n = i / width / 3 / h.tokens;
    float* to = part == 0 ? q : part == 1 ? k : v;
    to[((n * h.heads + a) * h.tokens + t) * h.head_size + c] = qkv[i];
  });
}

void merge_heads(cudaStream_t s, const float* in, float* out, const head_shape& h) {
  launch(s, h.sequences * h.tokens * h.heads * h.head_size, [=] __device__(std::size_t i) {
    const std::size_t c = i % h.head_size;
    const std::size_t a = i / h.head_size % h.heads;
    const std::size_t t = i / h.head_size / h.heads % h.tokens;
    const std::size_t n = i / h.head_size / h.heads / h.tokens;
    out[i] = in[((n * h.heads + a) * h.tokens + t) * h.head_size + c];
  });
}

void masked_softmax(cudaStream_t s, float* x, const float* lengths, const head_shape& h) {
  const std::size_t rows = h.sequences * h.heads * h.tokens;
  if (rows == 0) return;
  const unsigned blocks = static_cast<unsigned>(rows < 65535 ? rows : 65535);
  masked_softmax_kernel<<<blocks, threads, 0, s>>>(x, lengths, h);
}

}  // namespace cohort::models::kernels
