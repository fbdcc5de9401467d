/**
 * Internal classes that packages of this library share. They may change at any time: do not use
 * them in programs.
 */
package dev.leman.internal;
