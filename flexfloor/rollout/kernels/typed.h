/* The functions of decode.c for one type: ROW in memory, WIDE in arithmetic. T rows, H hidden, K experts of a
   row, G key/value heads with M query heads each, D channels, V channels of a value, C positions. */

/* hidden [T, H] += part [T, H], if there is one; out = its RMS norm times weight [H]. */
EXPORT void NAME(add_norm)(long rows, long width, ROW *hidden, const ROW *part, const ROW *weight, double eps,
                           ROW *out) {
#pragma omp parallel for if (rows * width > GRAIN)
  for (long t = 0; t < rows; t++) {
    ROW *x = hidden + t * width, *y = out + t * width;
    WIDE squares = 0;
    if (part) {
      const ROW *more = part + t * width;
#pragma omp simd
      for (long i = 0; i < width; i++) x[i] = WRITE(READ(x[i]) + READ(more[i]));
    }
#pragma omp simd reduction(+ : squares)
    for (long i = 0; i < width; i++) squares += READ(x[i]) * READ(x[i]);
    WIDE scale = 1 / SQRT(squares / width + (WIDE)eps);
#pragma omp simd
    for (long i = 0; i < width; i++) y[i] = WRITE(READ(x[i]) * scale * READ(weight[i]));
  }
}

/* mixed [T, G, M + 2, D] to turned queries [T, G * M, D] and, in kept [2, T, G, D], turned keys and values.
   cosines and signed sines [T, D]; norms [M + 1, D] of queries and key, if there are any. */
EXPORT void NAME(turn)(long rows, long groups, long queries, long channels, const ROW *mixed,
                       const ROW *cosines, const ROW *sines, const ROW *norms, double eps, ROW *query, ROW *kept) {
  long half = channels / 2;
#pragma omp parallel for if (rows * groups * queries * channels > GRAIN)
  for (long tg = 0; tg < rows * groups; tg++) {
    const ROW *c = cosines + tg / groups * channels, *s = sines + tg / groups * channels;
    const ROW *own = mixed + tg * (queries + 2) * channels;
    WIDE x[channels];
    for (long m = 0; m <= queries; m++, own += channels) {
      ROW *y = m < queries ? query + (tg * queries + m) * channels : kept + tg * channels;
      WIDE squares = 0;
#pragma omp simd reduction(+ : squares)
      for (long i = 0; i < channels; i++) {
        x[i] = READ(own[i]);
        squares += x[i] * x[i];
      }
      if (norms) {
        WIDE scale = 1 / SQRT(squares / channels + (WIDE)eps);
#pragma omp simd
        for (long i = 0; i < channels; i++) x[i] = x[i] * scale * READ(norms[m * channels + i]);
      }
#pragma omp simd
      for (long i = 0; i < half; i++) {
        y[i] = WRITE(x[i] * READ(c[i]) + x[i + half] * READ(s[i]));
        y[i + half] = WRITE(x[i + half] * READ(c[i + half]) + x[i] * READ(s[i + half]));
      }
    }
    memcpy(kept + (rows * groups + tg) * channels, own, channels * sizeof(ROW));
  }
}

/* query [T, G * M, D] over what each row's slot holds up to the row's position; out [T, G * M, V]. Slot t, head
   g of keys and values begins at t * slot_stride + g * group_stride, its positions are `stride` apart. */
EXPORT void NAME(attend)(long rows, long groups, long queries, long channels, long value_channels, const ROW *query,
                         const ROW *keys, const ROW *values, long slot_stride, long group_stride, long stride,
                         const int64_t *position, double factor, ROW *out) {
#pragma omp parallel for schedule(dynamic) if (rows * groups > 1 && rows * position[0] * channels > GRAIN)
  for (long tg = 0; tg < rows * groups; tg++) {
    long seen = position[tg / groups] + 1, start = tg / groups * slot_stride + tg % groups * group_stride;
    WIDE *scores = malloc((queries * (seen + channels + value_channels)) * sizeof(WIDE));
    WIDE *q = scores + queries * seen, *sums = q + queries * channels;
    for (long i = 0; i < queries * channels; i++) q[i] = READ(query[tg * queries * channels + i]) * (WIDE)factor;
    for (long c = 0; c < seen; c++) {
      const ROW *key = keys + start + c * stride;
      for (long m = 0; m < queries; m++) {
        WIDE score = 0;
#pragma omp simd reduction(+ : score)
        for (long i = 0; i < channels; i++) score += q[m * channels + i] * READ(key[i]);
        scores[m * seen + c] = score;
      }
    }
    memset(sums, 0, queries * value_channels * sizeof(WIDE));
    for (long m = 0; m < queries; m++) {
      WIDE *own = scores + m * seen, top = own[0], total = 0;
#pragma omp simd reduction(max : top)
      for (long c = 0; c < seen; c++) top = own[c] > top ? own[c] : top;
#pragma omp simd reduction(+ : total)
      for (long c = 0; c < seen; c++) {
        own[c] = EXP(own[c] - top);
        total += own[c];
      }
#pragma omp simd
      for (long c = 0; c < seen; c++) own[c] /= total;
    }
    for (long c = 0; c < seen; c++) {
      const ROW *value = values + start + c * stride;
      for (long m = 0; m < queries; m++) {
        WIDE share = scores[m * seen + c], *sum = sums + m * value_channels;
#pragma omp simd
        for (long i = 0; i < value_channels; i++) sum[i] += share * READ(value[i]);
      }
    }
    ROW *own_out = out + tg * queries * value_channels;
    for (long i = 0; i < queries * value_channels; i++) own_out[i] = WRITE(sums[i]);
    free(scores);
  }
}

/* lifted [T, 2F], gate before linear, to silu(gate) * linear [T, F]. */
EXPORT void NAME(swiglu)(long rows, long inner, const ROW *lifted, ROW *out) {
#pragma omp parallel for if (rows * inner > GRAIN)
  for (long t = 0; t < rows; t++) {
    const ROW *gate = lifted + 2 * t * inner, *linear = gate + inner;
#pragma omp simd
    for (long i = 0; i < inner; i++)
      out[t * inner + i] = WRITE(READ(gate[i]) / (1 + EXP(-READ(gate[i]))) * READ(linear[i]));
  }
}

/* Rows that chose the experts here, by expert: out [T * K, H]; place_of [T, K] gets where a choice stands in it,
   -1 for experts elsewhere, and count [E] how many rows an expert has. */
EXPORT void NAME(gather)(long rows, long choices, long width, long experts, const ROW *hidden, const int64_t *expert,
                         const uint8_t *is_here, int64_t *place_of, int64_t *count, ROW *out) {
  int64_t next[experts], sum = 0;
  memset(count, 0, experts * sizeof(int64_t));
  for (long i = 0; i < rows * choices; i++)
    if (expert[i] >= 0 && is_here[expert[i]]) count[expert[i]]++;
  for (long e = 0; e < experts; e++) next[e] = sum, sum += count[e];
  for (long i = 0; i < rows * choices; i++) {
    place_of[i] = expert[i] >= 0 && is_here[expert[i]] ? next[expert[i]]++ : -1;
    if (place_of[i] >= 0) memcpy(out + place_of[i] * width, hidden + i / choices * width, width * sizeof(ROW));
  }
}

/* out [T, H]: each row's choices in order, from the rows that `gather` made, times probs [T, K]. */
EXPORT void NAME(combine)(long rows, long choices, long width, const ROW *lowered, const WIDE *probs,
                          const int64_t *place_of, ROW *out) {
#pragma omp parallel for if (rows * choices * width > GRAIN)
  for (long t = 0; t < rows; t++) {
    WIDE sums[width];
    memset(sums, 0, sizeof sums);
    for (long i = t * choices; i < (t + 1) * choices; i++) {
      if (place_of[i] < 0) continue;
      const ROW *x = lowered + place_of[i] * width;
#pragma omp simd
      for (long h = 0; h < width; h++) sums[h] += probs[i] * READ(x[h]);
    }
    for (long h = 0; h < width; h++) out[t * width + h] = WRITE(sums[h]);
  }
}

/* A token for each row of logits [T, words] and its log-probability; temperature 0 takes the most likely. */
EXPORT void NAME(sample)(long rows, long words, const ROW *logits, const int64_t *key, const int64_t *position,
                         double temperature, int64_t *token, double *logprob) {
#pragma omp parallel for if (rows * words > GRAIN)
  for (long t = 0; t < rows; t++) {
    double *scaled = malloc(words * sizeof(double)), top = -INFINITY, total;
    double divisor = temperature > 0 ? temperature : 1;
#pragma omp simd reduction(max : top)
    for (long v = 0; v < words; v++) {
      scaled[v] = READ(logits[t * words + v]) / divisor;
      top = scaled[v] > top ? scaled[v] : top;
    }
#pragma omp simd
    for (long v = 0; v < words; v++) scaled[v] -= top;
    uint64_t base = mix(mix((uint64_t)key[t] + GOLDEN) + (uint64_t)position[t] * GOLDEN);
    token[t] = race(scaled, words, base, temperature > 0, &total);
    logprob[t] = scaled[token[t]] - log(total);
    free(scaled);
  }
}

#undef ROW
#undef WIDE
#undef NAME
#undef READ
#undef WRITE
#undef EXP
#undef SQRT
