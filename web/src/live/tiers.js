// Returns the tiers of all ranks by name: the tokens, bytes and seconds of each since the start.
export function tiersOf(ranks) {
  const all = new Map();
  for (const tier of ranks.flatMap((rank) => rank.tiers ?? [])) {
    const { tokens, bytes, saved, unavailable } = all.get(tier.name) ?? { tokens: 0, bytes: 0, saved: 0, unavailable: false };
    all.set(tier.name, {
      name: tier.name,
      tokens: tokens + tier.tokens_total,
      bytes: bytes + tier.read_bytes_total,
      saved: saved + tier.saved_seconds_total,
      unavailable: unavailable || tier.unavailable,
    });
  }
  return [...all.values()];
}
