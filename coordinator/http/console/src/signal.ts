// A value that components can follow.

import { useEffect, useState } from "preact/hooks";

export interface Signal<T> { readonly value: T; set(value: T): void; listen(listener: (value: T) => void): () => void }

export function signalOf<T>(first: T): Signal<T> {
  let value = first;
  const listeners = new Set<(value: T) => void>();
  return {
    get value() { return value; },
    set(next: T) {
      value = next;
      for (const listener of [...listeners]) listener(next);
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useSignal<T>(signal: Signal<T>): T {
  const [value, setValue] = useState(signal.value);
  useEffect(() => {
    setValue(() => signal.value);
    return signal.listen((next) => setValue(() => next));
  }, [signal]);
  return value;
}
