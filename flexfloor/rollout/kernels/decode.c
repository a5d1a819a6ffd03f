/* What stands between the matrix products of a rollout's pass, each as one loop over its rows.

   Compiled on first use for the processor at hand (library.py) and called on the memory of contiguous tensors
   (fused.py). Each type of rows has functions of its own, which typed.h defines: they compute in float for
   bfloat16 and float, and in double for double. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define GRAIN 32768 /* numbers from which on threads are worth their start */

/* glibc's vectors of these functions, which its own header declares for inexact arithmetic only. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
__attribute__((simd("notinbranch"))) double exp(double);
__attribute__((simd("notinbranch"))) double log(double);
__attribute__((simd("notinbranch"))) float expf(float);
#endif

/* SplitMix64, as in noise.py. */
static inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

#define GOLDEN 0x9E3779B97F4A7C15ULL
#define BLOCK 512 /* words that are raced at a time */

/* Exponential arrival times of `count` words from `first` on. */
static void arrivals(uint64_t base, long first, long count, double *out) {
#pragma omp simd
  for (long v = 0; v < count; v++) {
    uint64_t bits = mix(base + (uint64_t)(first + v + 1) * GOLDEN) >> 12;
    out[v] = -log(((double)(int64_t)bits + 0.5) * 0x1p-52);
  }
}

/* One token of one row of scaled logits, less their greatest; total of their exponentials. */
static long race(const double *scaled, long vocab, uint64_t base, int draws, double *total) {
  double weight[BLOCK], arrival[BLOCK], best = -1.0, sum = 0.0;
  long token = 0;
  for (long first = 0; first < vocab; first += BLOCK) {
    long count = vocab - first < BLOCK ? vocab - first : BLOCK;
#pragma omp simd reduction(+ : sum)
    for (long v = 0; v < count; v++) {
      weight[v] = exp(scaled[first + v]);
      sum += weight[v];
    }
    if (draws) {
      arrivals(base, first, count, arrival);
#pragma omp simd
      for (long v = 0; v < count; v++) weight[v] /= arrival[v];
    }
    double block_best = best;
#pragma omp simd reduction(max : block_best)
    for (long v = 0; v < count; v++) block_best = weight[v] > block_best ? weight[v] : block_best;
    if (block_best > best) {
      best = block_best;
      for (token = first; weight[token - first] != best;) token++;
    }
  }
  *total = sum;
  return token;
}

static inline float of_bfloat16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static inline uint16_t to_bfloat16(float value) {
  uint32_t wide;
  memcpy(&wide, &value, sizeof wide);
  uint32_t rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;
  return value == value ? (uint16_t)rounded : 0x7FC0;
}

#define ROW float
#define WIDE float
#define NAME(name) name##_float32
#define READ(x) (x)
#define WRITE(x) (x)
#define EXP expf
#define SQRT sqrtf
#include "typed.h"

#define ROW double
#define WIDE double
#define NAME(name) name##_float64
#define READ(x) (x)
#define WRITE(x) (x)
#define EXP exp
#define SQRT sqrt
#include "typed.h"

#define ROW uint16_t
#define WIDE float
#define NAME(name) name##_bfloat16
#define READ(x) of_bfloat16(x)
#define WRITE(x) to_bfloat16(x)
#define EXP expf
#define SQRT sqrtf
#include "typed.h"
